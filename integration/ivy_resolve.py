"""`python -m integration.ivy_resolve DIR COORDINATES [alone]`: Maven coordinates and what they need, into DIR/jars, without Maven.

With `alone`, the coordinates without what they need.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kstream.spark.java import ensure_java


def main(directory: str, coordinates: str, alone: str = "") -> None:
    """Uses Spark's own resolver through py4j; no SparkContext is started."""
    home = ensure_java()
    system_trust = Path("/etc/ssl/certs/java/cacerts")
    if "kstream-java-home" in str(home) and system_trust.exists():
        # A JRE from a wheel trusts only its own list; the machine's may know a proxy's certificate.
        options = os.environ.get("JDK_JAVA_OPTIONS", "")
        os.environ["JDK_JAVA_OPTIONS"] = f"{options} -Djavax.net.ssl.trustStore={system_trust}".strip()
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()
    jvm = gateway.jvm
    utils = jvm.org.apache.spark.util.MavenUtils
    settings = utils.buildIvySettings(jvm.scala.Option.empty(), jvm.scala.Option.apply(directory), True, jvm.System.err)
    nothing = jvm.scala.collection.immutable.List.newBuilder().result()
    utils.resolveMavenCoordinates(coordinates, settings, jvm.scala.Option.empty(), not alone, nothing, False, jvm.System.err)
    gateway.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:4])
