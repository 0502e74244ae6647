"""All topics of a cluster, by name."""

from mirror.net.cluster import Cluster
from mirror.net.errors import ConnectionLost
from mirror.net.metadata import ANY_NODE
from mirror.wire.metadata import METADATA_FLEXIBLE, METADATA_VERSIONS, all_topics_request, read_topic_codes
from mirror.wire.primitives import MalformedFrame
from mirror.wire.versions import METADATA_KEY


async def topic_codes(cluster: Cluster, *, node_id: int = ANY_NODE) -> dict[str, int]:
    """Returns topic name -> error code for all topics that the broker (by default any) knows and that the mirror may
    describe.

    Raises:
        NetworkError: the broker does not answer, or its response is malformed.
    """
    connection = await (cluster.control_of_any() if node_id == ANY_NODE else cluster.control(node_id))
    version = connection.version_of(METADATA_KEY, METADATA_VERSIONS, "Metadata")
    body = all_topics_request(version)
    frame = await connection.ask(METADATA_KEY, version, body, flexible=version >= METADATA_FLEXIBLE)
    try:
        return read_topic_codes(version, memoryview(frame))
    except MalformedFrame as error:
        failure = ConnectionLost(f"{connection.name}: malformed MetadataResponse, {error}")
        connection.close(failure)
        raise failure from error
