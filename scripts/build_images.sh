#!/usr/bin/env bash
# Builds the images that `pytest integration --containers` and docker-compose.yml use, for machines that cannot pull them:
#
#     scripts/build_images.sh [kafka] [zookeeper] [kstream] [prometheus]       (all, if none is named; the Docker daemon must run)
#     scripts/build_images.sh tag         prints the name of the image of kstream that has the sources as they are now; builds nothing
#
# local/kafka:4.3.1      from the jars of `make jars`; takes its settings as apache/kafka does (the same class reads them)
# local/zookeeper:3.9    from the jars inside pyspark
# kstream-spark          compose/Dockerfile, from wheels that pip of this machine fetches into .cache/wheels; also with a tag by its contents
# local/prometheus       from the programs that scripts/system-packages brings
#
# The bases, local/jre17 and local/python3.11-jre17, are BASE_IMAGE and PYTHON_IMAGE if those can be pulled, else a Debian of the JRE, or of the JRE and
# Python, and little more (needs mmdebstrap, and root or user namespaces). DOCKER names another client than `docker`.
set -euo pipefail
cd "$(dirname "$0")/.."
DOCKER=${DOCKER:-docker}
PYTHON=${PYTHON:-.venv/bin/python}
BASE_IMAGE=${BASE_IMAGE:-eclipse-temurin:17-jre}
PYTHON_IMAGE=${PYTHON_IMAGE:-python:3.11-slim-bookworm}
JRE=local/jre17
PYTHON_BASE=local/python3.11-jre17
SOURCES=(compose connectors kstream LICENSE README.md pyproject.toml requirements.lock .dockerignore) # of the image of kstream
export DOCKER_BUILDKIT=0 # the older builder needs no plugin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "build_images: $1" >&2
    exit 1
}

# base IMAGE PUBLIC PACKAGES: the public image under a name of ours, or a Debian with these packages
base() {
    "$DOCKER" image inspect "$1" > /dev/null 2>&1 && return
    if timeout 300 "$DOCKER" pull -q "$2" > /dev/null 2>&1; then
        "$DOCKER" tag "$2" "$1"
        return
    fi
    command -v mmdebstrap > /dev/null || fail "$2 cannot be pulled, and mmdebstrap, which could make a base, is not installed"
    echo "$2 cannot be pulled: making a Debian with $3, which takes a minute or two"
    # The JRE's set-up wants a man page folder; documentation is left out, it is half of a small image.
    mmdebstrap --quiet --variant=minbase --include="$3" --essential-hook='mkdir -p "$1/usr/share/man/man1"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' bookworm "$work/base.tar" > "$work/log" 2>&1 \
        || { cat "$work/log" >&2; fail "mmdebstrap could not make the base"; }
    "$DOCKER" import "$work/base.tar" "$1" > /dev/null
    rm "$work/base.tar"
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
    base "$JRE" "$BASE_IMAGE" openjdk-17-jre-headless
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
    base "$JRE" "$BASE_IMAGE" openjdk-17-jre-headless
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

# tag: the image of kstream under a name that changes with what goes into it
tag() {
    printf 'kstream-spark:%s\n' "$({ cat scripts/build_images.sh
        find "${SOURCES[@]}" -type f ! -path '*/__pycache__/*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; } | sha256sum | cut -c1-12)"
}

kstream() {
    local wheels=.cache/wheels tagged
    tagged=$(tag)
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || fail "PYTHON must be a Python 3.11, as in the image: its wheels are fetched"
    "$PYTHON" -m pip --version > /dev/null 2>&1 || "$PYTHON" -m ensurepip > /dev/null # uv makes environments without it
    base "$PYTHON_BASE" "$PYTHON_IMAGE" openjdk-17-jre-headless,python3,python3-venv
    mkdir -p "$wheels" "$work/context/wheels"
    echo "fetching the wheels of requirements.lock into $wheels"
    "$PYTHON" -m pip wheel --quiet --disable-pip-version-check --find-links "$wheels" --wheel-dir "$work/context/wheels" -c requirements.lock \
        '.[spark,s3,schema-registry,zookeeper,tls]' hatchling editables > "$work/log" 2>&1 \
        || { cat "$work/log" >&2; fail "the wheels cannot be fetched"; }
    rm -f "$work"/context/wheels/kstream_spark-*
    cp -u "$work"/context/wheels/*.whl "$wheels"
    cp -r "${SOURCES[@]}" "$work/context"
    "$DOCKER" build -q -f "$work/context/compose/Dockerfile" --build-arg PYTHON_IMAGE="$PYTHON_BASE" -t kstream-spark -t "$tagged" "$work/context" \
        > /dev/null
    "$DOCKER" image inspect -f "kstream-spark, $tagged: {{.Size}} bytes" "$tagged"
    rm -rf "$work/context"
}

prometheus() {
    local programs
    base "$JRE" "$BASE_IMAGE" openjdk-17-jre-headless
    bash scripts/system-packages .cache/system
    programs=$(PATH=$PATH:$PWD/.cache/system/usr/bin type -P prometheus) || fail "there is no prometheus"
    mkdir -p "$work/context"
    cp -L "$programs" "$(dirname "$programs")/promtool" "$work/context"
    cat > "$work/context/Dockerfile" <<DOCKERFILE
FROM $JRE
COPY prometheus promtool /bin/
RUN mkdir -p /prometheus && chown 65534 /prometheus
USER 65534
ENTRYPOINT ["/bin/prometheus"]
DOCKERFILE
    "$DOCKER" build -q -t local/prometheus "$work/context" > /dev/null
    "$DOCKER" image inspect -f "local/prometheus: {{.Size}} bytes" local/prometheus
    rm -rf "$work/context"
}

if [ "${1:-}" = tag ]; then
    tag
    exit
fi
"$DOCKER" version > /dev/null 2>&1 || fail "no Docker daemon answers $DOCKER"
for image in "${@:-kafka zookeeper kstream prometheus}"; do
    for name in $image; do
        case $name in
            kafka | zookeeper | kstream | prometheus) "$name" ;;
            *) fail "there is no image $name: kafka, zookeeper, kstream or prometheus" ;;
        esac
    done
done
