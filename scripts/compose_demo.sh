#!/usr/bin/env bash
# `make compose-demo`: the cluster of docker-compose.yml loses a worker, then its driver; then the driver is asked to stop. Each order must be
# counted once. Needs Docker and nothing else. KEEP=1 leaves the cluster running, with its page; else all of it goes, volumes included.
set -euo pipefail
cd "$(dirname "$0")/.."
PATIENCE_S=${PATIENCE_S:-180}
export COMPOSE_PROJECT_NAME=${COMPOSE_PROJECT_NAME:-kstream-demo}

if docker compose version > /dev/null 2>&1; then
    compose() { docker compose "$@"; }
else
    compose() { docker-compose "$@"; }
fi

# Tells what is done, with the seconds since the start.
say() {
    printf '%4d s  %s\n' "$SECONDS" "$1"
}

fail() {
    say "FAILED: $1" >&2
    compose ps >&2 || true
    compose logs --tail=30 job >&2 || true
    exit 1
}

# Runs compose in silence; of a failure the whole output is shown.
quietly() {
    local output
    output=$(compose "$@" 2>&1) || { echo "$output" >&2; fail "compose $* failed"; }
}

# wait_until WHAT COMMAND…: asks again until the command succeeds.
wait_until() {
    local what=$1 end=$((SECONDS + PATIENCE_S))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || fail "not so within $PATIENCE_S s: $what"
        sleep 1
    done
}

kstream() {
    compose exec -T spark-master kstream "$@"
}

orders() { # how many there are in Kafka
    kstream tail orders --bootstrap kafka:19092 --until-end 2> /dev/null | wc -l
}

counted() { # how many the job has counted: the sum of what it has written in committed transactions
    kstream tail counts --bootstrap kafka:19092 --param isolation.level=read_committed --until-end 2> /dev/null | awk '{sum += $1} END {print sum + 0}'
}

# Waits until as many orders are counted as there are now: so batches have run since.
wait_for_all_of_now() {
    local now
    now=$(orders) || fail "the orders cannot be read"
    wait_until "$now orders are counted" counted_at_least "$now"
}

counted_at_least() {
    [ "$(counted)" -ge "$1" ]
}

healthy() {
    [ "$(docker inspect -f '{{.State.Health.Status}}' "$1")" = healthy ]
}

end() {
    if [ "${KEEP:-}" = 1 ]; then
        say "KEEP=1: the cluster runs on; COMPOSE_PROJECT_NAME=$COMPOSE_PROJECT_NAME docker compose down -v ends it"
    else
        compose down -v -t 2 > /dev/null 2>&1 || true
    fi
}
trap end EXIT

say "Kafka, ZooKeeper, Spark with two workers, a stream of orders, the job that counts them, and Prometheus start"
# An image that is not here is built. The name that it has unless one is given changes with the sources, so it is never an old one.
export KSTREAM_IMAGE=${KSTREAM_IMAGE:-$(bash scripts/build_images.sh tag)}
quietly up -d
job=$(compose ps -q job)
wait_until "the job is healthy" healthy "$job"
wait_until "the first batch is counted" counted_at_least 1
say "the job runs: $(counted) orders are counted; $(docker logs "$job" 2>&1 | grep -o 'the page is at .*' | tail -1)"

quietly kill spark-worker-1
say "worker 1 is killed"
wait_for_all_of_now
say "the other worker has gone on: $(counted) orders are counted"
quietly start spark-worker-1

quietly kill job
before=$(counted) || fail "the counts cannot be read"
say "the driver is killed by SIGKILL, with $before orders counted; orders come in while it is away"
quietly start job
wait_for_all_of_now
say "the second driver has gone on from the checkpoint: $(counted) orders are counted"

quietly stop -t 60 job
code=$(docker inspect -f '{{.State.ExitCode}}' "$job")
[ "$code" = 0 ] || fail "the driver ended with exit code $code after SIGTERM"
status=$(compose exec -T spark-worker-2 kstream status /checkpoints/orders 2>&1 || true) # it sees the volume, too
[[ $status = *gracefully* && $status = *"pending: 0 batches"* ]] || fail "the status is: $status"
say "docker stop: SIGTERM reached the driver, which ended gracefully: exit code 0, no batch is pending"
quietly start job
wait_for_all_of_now
say "the third driver has gone on: $(counted) orders are counted"

feed=$(compose ps -q feed)
quietly stop -t 20 feed
say "the stream of orders ends: $(docker logs "$feed" 2>&1 | grep -o '[0-9,]* records acknowledged.*' | tail -1)"
total=$(orders) || fail "the orders cannot be read"
wait_until "all $total orders are counted" counted_at_least "$total"
quietly stop -t 60 job
found=$(counted) || fail "the counts cannot be read"
[ "$found" = "$total" ] || fail "$total orders are in Kafka, and $found are counted"
say "$total orders are in Kafka, and $found are counted. kstream audit proves it from Kafka alone:"
kstream audit counts --bootstrap kafka:19092 || fail "kstream audit does not prove it"
