"""CIFAR-10 is read in both original formats, with any number of records, and never runs what a file contains."""

import hashlib
import io
import os
import pickle
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from benchmark_modules import load

cifar = load("orthogonal_cnn", "cifar")
SUBSET = Path(__file__).parents[3] / "shared" / "data" / "cifar10-subset"


def made_up(count, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 3072), dtype=np.uint8), rng.integers(0, 10, count)


def binary(images, labels):
    return np.concatenate([labels[:, None].astype(np.uint8), images], axis=1).tobytes()


def python(images, labels):
    return pickle.dumps({b"data": images, b"labels": [int(label) for label in labels]}, protocol=2)


def write(folder, encode, suffix):
    """Two training files of 7 and 5 records, a test file of 3; what they hold."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [made_up(7, 1), made_up(5, 2), made_up(3, 3)]
    for name, part in zip(("data_batch_1", "data_batch_2", "test_batch"), parts, strict=True):
        (folder / f"{name}{suffix}").write_bytes(encode(*part))
    return parts


@pytest.mark.parametrize(("encode", "suffix"), [(binary, ".bin"), (python, "")], ids=["binary", "python"])
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
def test_both_formats_are_read_from_a_folder_and_from_an_archive(tmp_path, encode, suffix, packed):
    parts = write(tmp_path / "batches", encode, suffix)
    path = tmp_path / "batches"
    if packed:
        path = tmp_path / "cifar-10.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            archive.add(tmp_path / "batches", arcname="cifar-10-batches")
    found = cifar.read_cifar(path)
    assert found.train.shape == (12, 3, 32, 32)
    np.testing.assert_array_equal(found.train.reshape(12, -1), np.concatenate([parts[0][0], parts[1][0]]))
    np.testing.assert_array_equal(found.train_labels, np.concatenate([parts[0][1], parts[1][1]]))
    np.testing.assert_array_equal(found.test.reshape(3, -1), parts[2][0])
    assert "12 training and 3 test images" in found.note


def test_a_pickle_that_calls_something_is_refused_and_calls_nothing(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    write(tmp_path, python, "")
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": Bomb(), b"labels": []}))
    with pytest.raises(ValueError, match=r"mkdir.*refused"):
        cifar.read_cifar(tmp_path)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("suffix", "content", "words"),
    [
        (".bin", b"\x01" * 3072, "not a multiple"),
        (".bin", b"", "not a multiple"),
        (".bin", b"\x0b" + b"\x00" * 3072, "labels beyond"),
        ("", b"\x80\x02}q", "not a CIFAR-10 batch"),
        ("", pickle.dumps({b"data": b"short", b"labels": [1]}), "not a CIFAR-10 batch|cannot reshape|invalid literal"),
        ("", pickle.dumps({b"labels": [1]}), "not a CIFAR-10 batch"),
    ],
)
def test_a_damaged_file_is_an_error(tmp_path, suffix, content, words):
    write(tmp_path, binary if suffix else python, suffix)
    (tmp_path / f"data_batch_2{suffix}").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        cifar.read_cifar(tmp_path)


def test_an_archive_cut_short_is_an_error(tmp_path):
    write(tmp_path / "batches", binary, ".bin")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(tmp_path / "batches", arcname="b")
    path = tmp_path / "cifar-10-binary.tar.gz"
    path.write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    with pytest.raises(ValueError, match=r"not a readable tar archive.*toronto"):
        cifar.read_cifar(path)


def test_checksums_beside_the_files_are_checked_and_reported(tmp_path):
    write(tmp_path, binary, ".bin")
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tmp_path.glob("*.bin")}
    (tmp_path / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    assert "3 of 3 files verified by SHA256SUMS" in cifar.read_cifar(tmp_path).note
    content = bytearray((tmp_path / "test_batch.bin").read_bytes())
    content[100] ^= 1
    (tmp_path / "test_batch.bin").write_bytes(content)
    with pytest.raises(ValueError, match=r"test_batch\.bin differ from SHA256SUMS"):
        cifar.read_cifar(tmp_path)


def test_checksums_as_other_programs_write_them_are_understood(tmp_path):
    write(tmp_path, binary, ".bin")
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tmp_path.glob("*.bin")}
    marks = ["  ", " *", "  ./"]
    lines = [f"{digest.upper()}{mark}{name}" for (name, digest), mark in zip(sums.items(), marks, strict=True)]
    (tmp_path / "SHA256SUMS").write_text("\r\n".join([*lines, "", ""]))
    assert "3 of 3 files verified by SHA256SUMS" in cifar.read_cifar(tmp_path).note


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"abc", "line 1"),
        (b"\n" + b"0" * 64 + b" test_batch.bin extra\n", "line 2"),
        (b"0" * 63 + b"  test_batch.bin\n", "line 1"),
        (b"g" * 64 + b"  test_batch.bin\n", "line 1"),
        (b"\xff\xfe\x00", "line 1"),
        (b"0" * 64 + b"  test_batch.bin\n" + b"1" * 64 + b"  test_batch.bin\n", "line 2"),
        (b"0" * (2**20 + 1), "larger than"),
    ],
    ids=["word", "three words", "short", "digits", "bytes", "twice", "large"],
)
def test_malformed_checksums_are_an_error_that_names_the_line(tmp_path, content, words):
    write(tmp_path, binary, ".bin")
    (tmp_path / "SHA256SUMS").write_bytes(content)
    with pytest.raises(ValueError, match=rf"SHA256SUMS.*{words}"):
        cifar.read_cifar(tmp_path)


def zeros(archive, name, size):
    member = tarfile.TarInfo(name)
    member.size = size
    archive.addfile(member, Zeros(size))


class Zeros(io.RawIOBase):
    def __init__(self, size):
        self.left = size

    def readable(self):
        return True

    def readinto(self, buffer):
        count = min(len(buffer), self.left)
        buffer[:count] = bytes(count)
        self.left -= count
        return count


def long_name(archive):
    """A header that says that a name of many megabytes follows."""
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 40 * 2**20
    archive.addfile(member, Zeros(member.size))


@pytest.mark.parametrize(
    ("mode", "plant"),
    [
        ("w:gz", lambda archive: zeros(archive, "data_batch_1.bin", 40 * 2**20)),
        ("w:xz", lambda archive: zeros(archive, "data_batch_1.bin", 40 * 2**20)),
        ("w:gz", lambda archive: zeros(archive, "something else", 40 * 2**20)),
        ("w:gz", lambda archive: [zeros(archive, f"data_batch_{i}.bin", 3073 * 2000) for i in range(6)]),
        ("w:gz", long_name),
    ],
    ids=["one file", "xz", "another file", "many files", "name"],
)
def test_an_archive_that_unpacks_to_far_more_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch, mode, plant):
    monkeypatch.setattr(cifar, "LARGEST", 2**24, raising=False)
    path = tmp_path / "cifar.tar"
    with tarfile.open(path, mode) as archive:
        plant(archive)
    assert path.stat().st_size < 2**20
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"cifar\.tar .*16 MB"):
            cifar.read_cifar(path)
        assert tracemalloc.get_traced_memory()[1] < 3 * 2**24
    finally:
        tracemalloc.stop()


def test_files_of_a_folder_are_bounded_too(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "LARGEST", 3073 * 10, raising=False)
    write(tmp_path, binary, ".bin")  # 15 records
    with pytest.raises(ValueError, match=r"larger than .*toronto"):
        cifar.read_cifar(tmp_path)


def test_files_that_are_not_the_original_ones_are_reported_as_such(tmp_path):
    write(tmp_path / "python", python, "")
    assert "0 of 3 files are the original ones" in cifar.read_cifar(tmp_path / "python").note
    write(tmp_path / "binary", binary, ".bin")
    assert "no checksums to compare with" in cifar.read_cifar(tmp_path / "binary").note


@pytest.mark.parametrize("what", ["nothing", "an empty folder"])
def test_missing_data_is_an_error_that_says_what_to_fetch_and_where_to_put_it(tmp_path, what):
    path = tmp_path / "cifar"
    if what != "nothing":
        path.mkdir()
    with pytest.raises(ValueError, match=r"cifar-10-binary.tar.gz.*toronto.*--data"):
        cifar.read_cifar(path)


@pytest.mark.skipif(not SUBSET.exists(), reason="no subset of CIFAR-10 beside the repository")
def test_real_records_are_read():
    found = cifar.read_cifar(SUBSET)
    assert (len(found.train), len(found.test)) == (5000, 1000)
    assert np.bincount(found.train_labels).tolist() == [500] * 10
    assert "2 of 2 files verified by SHA256SUMS" in found.note
