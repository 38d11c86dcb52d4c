"""Payments with fraud alerts: orders joined with payments, what each customer has spent, a blacklist, and the alerts of all rules."""

import random

from pyspark.streaming import StreamingContext

SECONDS = 10
CUSTOMERS = [f"c{n:03}" for n in range(60)]
BLACKLIST = [("c007", "stolen card"), ("c013", "chargebacks"), ("c042", "stolen card")]
OPENING = [("c000", (500, 1)), ("c059", (90, 3)), ("c999", (10, 1))]
MOST_SPENT, MOST_PAYMENTS = 6000, 25


def draw_batches():
    """Orders (order, (customer, amount)) and payments (order, amount): some orders unpaid, some paid wrongly, some paid and not ordered."""
    draw, number, orders, payments = random.Random(7), 0, [], []
    for second in range(SECONDS - 1):
        ordered, paid = [], []
        for _ in range(0 if second == 5 else draw.randint(150, 300)):
            number += 1
            amount = draw.randint(1, 400)
            customer = "c003" if draw.random() < 0.05 else draw.choice(CUSTOMERS)
            ordered.append((number, (customer, amount)))
            if draw.random() < 0.9:
                paid.append((number, amount if draw.random() < 0.95 else amount - draw.randint(1, amount)))
        paid += [(-number - n, draw.randint(1, 50)) for n in range(3)]
        orders.append(ordered)
        payments.append(paid)
    return orders, payments


def spent(amounts, state):
    """(sum, payments) of a customer; forgotten when it was all one small payment."""
    total, count = state or (0, 0)
    total, count = total + sum(amounts), count + len(amounts)
    return None if count == 1 and total < 20 else (total, count)


def with_blacklist(rdd):
    """(customer, (amount, reason or None)). The blacklist is looked at for every batch."""
    return rdd.leftOuterJoin(rdd.context.parallelize(BLACKLIST, 2), 2)


def build(ssc, orders, payments, keep):
    ordered, paid = ssc.queueStream(orders), ssc.queueStream(payments)
    both = ordered.fullOuterJoin(paid)
    matched = ordered.join(paid)
    by_customer = matched.map(lambda entry: (entry[1][0][0], entry[1][1]))
    totals = by_customer.updateStateByKey(spent, initialRDD=OPENING)
    wrong = both.filter(lambda entry: None not in entry[1] and entry[1][0][1] != entry[1][1]).map(lambda e: ("wrong amount", e[1][0][0]))
    stray = both.filter(lambda entry: entry[1][0] is None).map(lambda entry: ("no such order", str(entry[0])))
    listed = by_customer.transform(with_blacklist).filter(lambda e: e[1][1] is not None).map(lambda e: ("blacklist", f"{e[0]}: {e[1][1]}"))
    much = totals.filter(lambda e: e[1][0] > MOST_SPENT or e[1][1] > MOST_PAYMENTS).map(lambda e: ("much", e[0]))
    alerts = wrong.union(stray).union(listed).union(much)
    keep("unpaid", both.filter(lambda entry: entry[1][1] is None).mapValues(lambda sides: sides[0][0]))
    keep("paid", matched.mapValues(lambda sides: sides[1]))
    keep("totals", totals)
    keep("alerts", alerts, "any")
    keep("alerts by rule", ssc.union(wrong, stray, listed, much).map(lambda alert: alert[0]).countByValueAndWindow(6, 2))
    keep("turnover", by_customer.map(lambda entry: entry[1]).reduce(lambda a, b: a + b))


def program(run):
    ssc = run.at_start(StreamingContext(run.sc, 1))
    ssc.checkpoint(str(run.directory / "checkpoint"))
    orders, payments = draw_batches()
    build(ssc, orders, payments, run.recorder.keep)
    run.start(ssc)
    run.tick(ssc, SECONDS)
    ssc.stop(False)
