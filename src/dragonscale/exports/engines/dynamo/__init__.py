"""NVIDIA Dynamo: a `DynamoGraphDeployment`, whose operator starts a frontend and the workers of each pool."""

from dragonscale.exports.engines.dynamo.reader import read, recognises
from dragonscale.exports.engines.dynamo.writer import write

__all__ = ["read", "recognises", "write"]
