"""SQLite exports of Nsight Systems, with the columns of an early and of a recent version."""

import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dragonscale.errors import InputError
from dragonscale.evidence.profiles.opening import read_recording
from dragonscale.evidence.profiles.recording import OpText, Recording
from dragonscale.listener import Listener

EARLY = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT NOT NULL, end INT NOT NULL, globalTid INT NOT NULL, correlationId INT NOT NULL, nameId INT NOT NULL,
    returnValue INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL, contextId INT NOT NULL, streamId INT NOT NULL,
    correlationId INT NOT NULL, globalPid INT NOT NULL, demangledName INT NOT NULL, shortName INT NOT NULL, registersPerThread INT NOT NULL,
    gridX INT NOT NULL, gridY INT NOT NULL, gridZ INT NOT NULL, blockX INT NOT NULL, blockY INT NOT NULL, blockZ INT NOT NULL,
    staticSharedMemory INT NOT NULL, dynamicSharedMemory INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL, contextId INT NOT NULL, streamId INT NOT NULL,
    correlationId INT NOT NULL, globalPid INT NOT NULL, bytes INT NOT NULL, copyKind INT NOT NULL);
CREATE TABLE NVTX_EVENTS (start INT NOT NULL, end INT, eventType INT NOT NULL, rangeId INT, category INT, color INT, text TEXT, globalTid INT,
    endGlobalTid INT, domainId INT);
CREATE TABLE TARGET_INFO_CUDA_GPU (id INT NOT NULL, name TEXT);
"""
RECENT = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, isDiscrete INTEGER, l2CacheSize INTEGER,
    totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL, uuid TEXT, numMultiprocessors INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,
    nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
    greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL,
    mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
    gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
    dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL,
    sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
    greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL,
    deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER, srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER,
    migrationCause INTEGER, graphNodeId INTEGER, virtualAddress INTEGER, copyCount INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
    greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT NULL,
    graphNodeId INTEGER, memKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
    greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, graphId INTEGER, graphExecId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, color INTEGER, text TEXT,
    globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL,
    uint32Value INTEGER, int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT);
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
    address INTEGER NOT NULL, pc INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL, name TEXT,
    correlationId INTEGER, streamId INTEGER, localMemoryPoolAddress INTEGER);
"""
PROCESS = 1 << 48 | 4711 << 24
THREAD = PROCESS | 4711
ENGINE = PROCESS | 4799
NAMES = [
    "void cutlass::gemm<bf16>(Params)",
    "gemm",
    "cudaLaunchKernel_v7000",
    "cudaGraphLaunch_v10000",
    "ncclDevKernel_AllReduce_Sum_bf16",
    "mlp",
    "python",
]


def put(database: sqlite3.Connection, table: str, **values: Any) -> None:
    """A row; columns that the version has and nobody named are 0 where they must be something."""
    columns = database.execute(f"PRAGMA table_info({table})").fetchall()
    row = {one[1]: values.get(one[1], 0 if one[3] else None) for one in columns}
    names, marks = ", ".join(f'"{one}"' for one in row), ", ".join("?" * len(row))
    database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))


def exported(path: Path, schema: str) -> Path:
    """Two steps: a matmul in `mlp`, its backward on another thread, an all-reduce on a stream of its own, a copy."""
    database = sqlite3.connect(path)
    database.executescript(schema)
    for number, name in enumerate(NAMES):
        put(database, "StringIds", id=number + 1, value=name)
    has = {one[0] for one in database.execute("SELECT name FROM sqlite_master")}
    if "TARGET_INFO_GPU" in has:
        put(
            database,
            "TARGET_INFO_GPU",
            id=3,
            name="NVIDIA H100 80GB HBM3",
            totalMemory=85 << 30,
            memoryBandwidth=3_352_320_000_000,
        )
        put(database, "TARGET_INFO_CUDA_DEVICE", gpuId=3, cudaId=0, pid=4711)
        put(database, "ThreadNames", nameId=7, globalTid=THREAD)
        for at, what in ((10, 0), (20, 0), (30, 1)):
            put(
                database,
                "CUDA_GPU_MEMORY_USAGE_EVENTS",
                start=at,
                globalPid=PROCESS,
                bytes=1000,
                memKind=2,
                memoryOperationType=what,
            )
    kernel = {
        "globalPid": PROCESS,
        "deviceId": 0,
        "gridX": 64,
        "gridY": 2,
        "gridZ": 1,
        "blockX": 128,
        "blockY": 1,
        "blockZ": 1,
        "registersPerThread": 90,
    }
    for step in range(2):
        at, link = 10_000 * step, 10 * step
        nvtx = {"eventType": 59, "globalTid": THREAD}
        put(database, "NVTX_EVENTS", start=at, end=at + 9000, text=f"iteration {step + 5}", **nvtx)
        put(
            database,
            "NVTX_EVENTS",
            start=at + 100,
            end=at + 900,
            text=None if " textId " in schema else "mlp",
            textId=6,
            **nvtx,
        )
        put(database, "NVTX_EVENTS", start=at + 110, end=at + 800, text=f"aten::mm, seq = {step}, op_id = 9", **nvtx)
        put(database, "NVTX_EVENTS", start=at + 150, end=None, text="a mark", eventType=34, globalTid=THREAD)
        put(
            database,
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=at + 200,
            end=at + 250,
            globalTid=THREAD,
            correlationId=link + 1,
            nameId=3,
        )
        put(
            database,
            "CUPTI_ACTIVITY_KIND_KERNEL",
            start=at + 1000,
            end=at + 2000,
            streamId=7,
            correlationId=link + 1,
            demangledName=1,
            shortName=2,
            **kernel,
        )
        text = f"MmBackward0, seq = {step}, op_id = 12"
        put(database, "NVTX_EVENTS", start=at + 2000, end=at + 2500, text=text, eventType=59, globalTid=ENGINE)
        put(
            database,
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=at + 2100,
            end=at + 2150,
            globalTid=ENGINE,
            correlationId=link + 2,
            nameId=3,
        )
        put(
            database,
            "CUPTI_ACTIVITY_KIND_KERNEL",
            start=at + 2500,
            end=at + 4000,
            streamId=7,
            correlationId=link + 2,
            demangledName=1,
            shortName=2,
            **kernel,
        )
        put(
            database,
            "CUPTI_ACTIVITY_KIND_KERNEL",
            start=at + 4000,
            end=at + 5000,
            streamId=20,
            correlationId=link + 3,
            demangledName=5,
            shortName=5,
            **kernel,
        )
        put(
            database,
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            start=at + 5000,
            end=at + 5100,
            streamId=7,
            correlationId=link + 4,
            globalPid=PROCESS,
            bytes=512,
            copyKind=2,
        )
    database.commit()
    database.close()
    return path


def ops_on(recording: Recording, kind: Any) -> list[OpText]:
    return [recording.ops[one] for one in recording.events.op[recording.on(kind)].tolist()]


@pytest.mark.parametrize("schema", [EARLY, RECENT], ids=["early", "recent"])
def test_an_export(schema: str, tmp_path: Path) -> None:
    recording = read_recording(str(exported(tmp_path / "t.sqlite", schema)), Listener())
    assert recording.software == "Nsight Systems"
    assert {(one.name, one.kind) for one in recording.tracks if one.device == 0} == {
        ("stream 7", "ops"),
        ("stream 20", "async"),
        ("stream 7 copies", "copies"),
        ("steps", "steps"),
    }
    forward, backward = ops_on(recording, "ops")[:2]
    assert forward.name == NAMES[0]
    assert (forward.caller, forward.scope) == ("aten::mm", "mlp")
    assert forward.launch == "grid 64x2x1, block 128x1x1, registers 90"
    assert (backward.caller, backward.scope) == ("MmBackward0", "mlp")
    events = recording.events.chosen(recording.on("ops"))
    assert (events.start - events.launched).tolist() == [800, 400] * 2
    assert events.duration.tolist() == [1000, 1500] * 2
    assert events.run.tolist() == [5, 5, 6, 6]
    assert recording.events.run[recording.on("steps", -1)].tolist() == [5, 6]
    assert {(one.name, one.wire_bytes) for one in ops_on(recording, "copies")} == {("Memcpy DtoH", 512.0)}
    assert "cudaLaunchKernel" in {one.name for one in ops_on(recording, "host")}


def test_a_recent_export_knows_its_gpu_and_memory(tmp_path: Path) -> None:
    recording = read_recording(str(exported(tmp_path / "t.sqlite", RECENT)), Listener())
    (gpu,) = recording.devices
    assert (gpu.name, gpu.index, gpu.bandwidth, gpu.memory_bytes) == (
        "NVIDIA H100 80GB HBM3",
        3,
        3352320000000.0,
        float(85 << 30),
    )
    assert [one.bytes for one in recording.memory] == [1000.0, 2000.0, 1000.0]
    assert any("python" in one.name for one in recording.tracks if one.kind == "host")


def test_graphs_recorded_as_a_whole_are_said(tmp_path: Path) -> None:
    path = exported(tmp_path / "t.sqlite", RECENT)
    database = sqlite3.connect(path)
    put(
        database,
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        start=30_000,
        end=31_000,
        streamId=7,
        globalPid=PROCESS,
        correlationId=90,
        graphId=2,
    )
    put(database, "CUPTI_ACTIVITY_KIND_RUNTIME", start=29_000, end=29_500, globalTid=THREAD, correlationId=90, nameId=4)
    database.commit()
    database.close()
    recording = read_recording(str(path), Listener())
    assert ops_on(recording, "ops")[-1].name == "CUDA graph 2"
    assert "--cuda-graph-trace=node" in recording.notes[0]


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE StringIds",
        "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME",
        "DROP TABLE NVTX_EVENTS",
        "UPDATE StringIds SET value = x'ff00fe'",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon', streamId = 'x', gridX = 1e300",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 5",
        (
            "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 9223372036854775807, streamId = -9223372036854775808, "
            "correlationId = 9223372036854775807"
        ),
        "UPDATE NVTX_EVENTS SET globalTid = 'none', end = 9223372036854775807",
        "UPDATE NVTX_EVENTS SET text = zeroblob(100000)",
        "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN streamId",
        "DELETE FROM TARGET_INFO_GPU",
    ],
)
def test_exports_that_are_not_as_they_should_be(change: str, tmp_path: Path) -> None:
    path = exported(tmp_path / "t.sqlite", RECENT)
    with sqlite3.connect(path) as database:
        database.execute(change)
    recording = read_recording(str(path), Listener())
    assert len(ops_on(recording, "copies")) == 2
    assert (recording.events.duration >= 0).all()


def test_other_databases_are_refused(tmp_path: Path) -> None:
    for number, text in enumerate(
        [
            "CREATE TABLE a (b)",
            (
                "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT 1 FROM "
                "c) SELECT x FROM c"
            ),
        ]
    ):
        path = tmp_path / f"{number}.sqlite"
        with sqlite3.connect(path) as database:
            database.execute(text)
        with pytest.raises(InputError, match="without kernels"):
            read_recording(str(path), Listener())


def mutations(tmp_path: Path, count: int, seed: int) -> None:
    dice, path = random.Random(seed), tmp_path / "m.sqlite"
    good = exported(tmp_path / "t.sqlite", RECENT).read_bytes()
    read = 0
    for _ in range(count):
        data = bytearray(good)
        for _ in range(dice.randint(1, 20)):
            at = dice.randrange(16, len(data))
            data[at : at + dice.randint(1, 8)] = dice.randbytes(dice.randint(1, 8))
        path.write_bytes(data[: dice.randrange(len(data))] if dice.random() < 0.2 else data)
        try:
            read += bool(len(read_recording(str(path), Listener()).events.start))
        except InputError as error:
            sentence = str(error)
        else:
            sentence = ""
        assert "\n" not in sentence
    assert 0 < read < count


def test_mutated_exports(tmp_path: Path) -> None:
    mutations(tmp_path, 100, 1)


@pytest.mark.slow
def test_many_mutated_exports(tmp_path: Path) -> None:
    mutations(tmp_path, 5000, 2)
