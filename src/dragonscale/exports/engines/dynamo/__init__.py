"""NVIDIA Dynamo: a `DynamoGraphDeployment`, whose operator starts a frontend and the workers of each pool."""

from dragonscale.exports.engines.dynamo.read_dynamo import read, recognises
from dragonscale.exports.engines.dynamo.write_dynamo import write

__all__ = ["read", "recognises", "write"]
