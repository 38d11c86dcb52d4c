"""The earlier place of LogTools. Connectors that were written for it go on."""

from kstream.direct.connector import LogTools as LogTools
