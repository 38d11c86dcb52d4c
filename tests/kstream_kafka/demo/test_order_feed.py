"""The generator of orders: seeded, endless and plausible."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from statistics import mean

from kstream_kafka.demo.order_feed import LATE_MS, PRODUCTS, REGIONS, orders

BEGIN = 1_760_000_000_000


def test_one_seed_gives_the_same_orders_and_another_gives_others() -> None:
    first, again, other = (list(islice(orders(seed, BEGIN), 500)) for seed in (7, 7, 8))
    assert first == again and first != other


def test_ids_count_from_one_without_a_hole() -> None:
    assert [order.order_id for order in islice(orders(1), 1000)] == list(range(1, 1001))


def test_event_time_goes_on_at_the_rate_and_a_few_orders_come_late() -> None:
    late = [BEGIN + n * 1000 / 200 - o.event_time_ms for n, o in enumerate(islice(orders(1, BEGIN, rate=200), 2000), 1)]
    assert all(-1 <= ms <= LATE_MS for ms in late)
    assert 0.05 < mean(ms > 1 for ms in late) < 0.15


def test_every_region_and_product_is_sold_and_some_sell_better() -> None:
    some = list(islice(orders(3), 20_000))
    regions, products = Counter(o.region for o in some), Counter(o.product for o in some)
    assert set(regions) == set(REGIONS) and set(products) == {name for name, _ in PRODUCTS}
    assert max(regions.values()) < 1.3 * min(regions.values())
    assert max(products.values()) > 3 * min(products.values())
    assert max(Counter(o.customer for o in some).values()) > 10


def test_prices_stay_near_the_usual_one_and_totals_are_of_all_pieces() -> None:
    usual = dict(PRODUCTS)
    for order in islice(orders(5), 5000):
        assert 0.89 * usual[order.product] <= order.price_cents <= 1.11 * usual[order.product]
        assert order.total_cents == order.quantity * order.price_cents and order.quantity > 0


def test_a_record_is_json_of_about_150_bytes() -> None:
    sizes = [len(order.to_json()) for order in islice(orders(9), 2000)]
    assert min(sizes) > 110 and max(sizes) < 180
    order = next(orders(9, BEGIN))
    fields = json.loads(order.to_json())
    assert fields["order_id"] == 1 and fields["event_time"] == order.event_time_ms
    assert fields["quantity"] * fields["price_cents"] == order.total_cents
