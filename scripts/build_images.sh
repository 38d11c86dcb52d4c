#!/usr/bin/env bash
# Builds the images that `pytest integration --containers` and docker-compose.yml use, for machines that cannot pull them:
#
#     scripts/build_kafka_image.sh [kafka] [zookeeper]       (both, if none is named; the Docker daemon must run)
#
# local/kafka:4.3.1      from the jars of `make jars`; takes its settings as apache/kafka does (the same class reads them)
# local/zookeeper:3.9    from the jars inside pyspark
#
# The base, local/jre17, is BASE_IMAGE if that can be pulled, else a Debian of the JRE and little more (needs mmdebstrap, and root or
# user namespaces). DOCKER names another client than `docker`.
set -euo pipefail
cd "$(dirname "$0")/.."
DOCKER=${DOCKER:-docker}
PYTHON=${PYTHON:-.venv/bin/python}
BASE_IMAGE=${BASE_IMAGE:-eclipse-temurin:17-jre}
JRE=local/jre17
export DOCKER_BUILDKIT=0 # the older builder needs no plugin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "build_kafka_image: $1" >&2
    exit 1
}

base() {
    "$DOCKER" image inspect "$JRE" > /dev/null 2>&1 && return
    if timeout 300 "$DOCKER" pull -q "$BASE_IMAGE" > /dev/null 2>&1; then
        "$DOCKER" tag "$BASE_IMAGE" "$JRE"
        return
    fi
    command -v mmdebstrap > /dev/null || fail "$BASE_IMAGE cannot be pulled, and mmdebstrap, which could make a base, is not installed"
    echo "$BASE_IMAGE cannot be pulled: making a Debian with a JRE, which takes a minute or two"
    # The JRE's set-up wants a man page folder; documentation is left out, it is half of a small image.
    mmdebstrap --quiet --variant=minbase --include=openjdk-17-jre-headless --essential-hook='mkdir -p "$1/usr/share/man/man1"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' bookworm "$work/base.tar" > "$work/log" 2>&1 \
        || { cat "$work/log" >&2; fail "mmdebstrap could not make the base"; }
    "$DOCKER" import "$work/base.tar" "$JRE" > /dev/null
}

# build NAME: an image from what lies in $work/context
build() {
    printf '%s\n' '<Configuration status="WARN"><Appenders><Console name="out" target="SYSTEM_OUT"><PatternLayout pattern="[%d] %p %m (%c)%n"/>' \
        '</Console></Appenders><Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers></Configuration>' > "$work/context/log4j2.xml"
    chmod 755 "$work/context/run"
    cat > "$work/context/Dockerfile" <<DOCKERFILE
FROM $JRE
COPY jars/ /opt/jars/
COPY log4j2.xml run /opt/
ENV JAVA_TOOL_OPTIONS="-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile=/opt/log4j2.xml"
CMD ["/opt/run"]
DOCKERFILE
    "$DOCKER" build -q -t "$1" "$work/context" > /dev/null
    "$DOCKER" image inspect -f "$1: {{.Size}} bytes" "$1"
    rm -rf "$work/context"
}

kafka() {
    local jars
    jars=$("$PYTHON" -m integration.kafka_jars)
    mkdir -p "$work/context/jars"
    cp "$jars"/*.jar "$work/context/jars"
    cat > "$work/context/run" <<'RUN'
#!/bin/sh
# Settings come as KAFKA_… variables; /opt/config is made of them at every start, the log folder is formatted at the first.
set -e
export CLUSTER_ID=${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}
mkdir -p /etc/kafka/docker /mnt/shared/config /opt/config
for name in server.properties log4j2.yaml tools-log4j2.yaml; do [ -e /etc/kafka/docker/$name ] || : > /etc/kafka/docker/$name; done
java -Xmx128m -cp '/opt/jars/*' kafka.docker.KafkaDockerWrapper setup --default-configs-dir /etc/kafka/docker \
    --mounted-configs-dir /mnt/shared/config --final-configs-dir /opt/config > /tmp/setup 2>&1 \
    || grep -qi 'already formatted' /tmp/setup || { cat /tmp/setup; exit 1; }
exec java ${KAFKA_HEAP_OPTS:--Xms64m -Xmx256m} -cp '/opt/jars/*' kafka.Kafka /opt/config/server.properties
RUN
    build local/kafka:4.3.1
}

zookeeper() {
    local jars
    jars=$("$PYTHON" -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent / "jars")')
    mkdir -p "$work/context/jars"
    for name in zookeeper slf4j-api log4j-slf4j2-impl log4j-api log4j-core netty metrics-core snappy-java commons-io; do
        cp "$jars/$name"-*.jar "$work/context/jars"
    done
    rm -f "$work"/context/jars/*-{osx,windows}-*.jar "$work"/context/jars/*kqueue*.jar
    cat > "$work/context/run" <<'RUN'
#!/bin/sh
set -e
mkdir -p /data
printf '%s\n' "tickTime=${ZOO_TICK_TIME:-2000}" dataDir=/data clientPort=2181 admin.enableServer=false \
    '4lw.commands.whitelist=srvr,ruok,mntr' $ZOO_CFG_EXTRA > /opt/zoo.cfg
exec java ${JVMFLAGS:--Xms32m -Xmx128m} -cp '/opt/jars/*' org.apache.zookeeper.server.quorum.QuorumPeerMain /opt/zoo.cfg
RUN
    build local/zookeeper:3.9
}

"$DOCKER" version > /dev/null 2>&1 || fail "no Docker daemon answers $DOCKER"
base
for image in "${@:-kafka zookeeper}"; do
    for name in $image; do
        case $name in
            kafka | zookeeper) "$name" ;;
            *) fail "there is no image $name: kafka or zookeeper" ;;
        esac
    done
done
