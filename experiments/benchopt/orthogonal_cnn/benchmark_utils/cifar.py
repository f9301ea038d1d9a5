"""Reads CIFAR-10 from a folder or archive in either original format, up to a gigabyte, and its checksums."""

import bz2
import gzip
import hashlib
import io
import lzma
import pickle
import re
import tarfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

RECORD = 1 + 3072
WHERE = (
    "fetch cifar-10-binary.tar.gz or cifar-10-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html and give "
    "the archive, or the folder it unpacks to, by --data"
)
# MD5 of the original archives, and of the files of the Python version.
OFFICIAL = {
    "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
    "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
# Bytes that are read of all files together, unpacked (the original ones have 185 MB), and of the checksums.
LARGEST = 2**30
LARGEST_SUMS = 2**20
WANTED = re.compile(r"(data_batch_\d+|test_batch)(\.bin)?|SHA256SUMS")
COMPRESSIONS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
# What NumPy arrays in a pickle of the Python version are made of; anything else in it is refused.
ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class Cifar(NamedTuple):
    """Images of shape (N, 3, 32, 32), bytes, and labels; `note` says where from and how checked."""

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray
    note: str


class ArraysOnly(pickle.Unpickler):
    """An unpickler that makes containers and NumPy arrays, and calls nothing else."""

    def find_class(self, module, name):
        if (module, name) not in ALLOWED:
            raise ValueError(f"the pickle wants {module}.{name}, which no original CIFAR-10 file does: refused")
        return super().find_class(module, name)


def read_cifar(path):
    """All images under a path; a ValueError that says what to fetch where something is missing or broken."""
    path = Path(path)
    if not path.exists():
        raise ValueError(f"there is no CIFAR-10 at {path}: {WHERE}")
    files = files_of_folder(path) if path.is_dir() else files_of_archive(path)
    train = [name for name in sorted(files) if re.fullmatch(r"data_batch_\d+(\.bin)?", name)]
    test = [name for name in sorted(files) if re.fullmatch(r"test_batch(\.bin)?", name)]
    if not train or not test:
        raise ValueError(f"{path} has no data_batch_* and test_batch: {WHERE}")
    images, labels = zip(*(read_batch(name, files[name]) for name in train), strict=True)
    test_images, test_labels = read_batch(test[0], files[test[0]])
    note = f"CIFAR-10 from {path.name}: {sum(map(len, labels))} training and {len(test_labels)} test images; "
    note += checked(path, files, [*train, *test])
    return Cifar(np.concatenate(images), np.concatenate(labels), test_images, test_labels, note)


def files_of_folder(folder):
    inner = [folder, folder / "cifar-10-batches-py", folder / "cifar-10-batches-bin"]
    found = next((place for place in inner if any(place.glob("test_batch*"))), folder)
    files = [file for file in found.iterdir() if WANTED.fullmatch(file.name) and file.is_file()]
    if sum(file.stat().st_size for file in files) > LARGEST:
        raise ValueError(f"the files in {folder} are {too_large()}")
    return {file.name: file.read_bytes() for file in files}


def files_of_archive(path):
    try:
        with open(path, "rb") as raw:
            head = raw.read(6)
        start = next((open_ for magic, open_ in COMPRESSIONS.items() if head.startswith(magic)), open)
        with start(path, "rb") as unpacked, tarfile.open(fileobj=Bounded(unpacked), mode="r|") as archive:
            return {
                Path(member.name).name: archive.extractfile(member).read()
                for member in archive
                if member.isfile() and WANTED.fullmatch(Path(member.name).name)
            }
    except TooLarge:
        raise ValueError(f"{path} is {too_large()}") from None
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"{path} is not a readable tar archive ({error}): {WHERE}") from None


class TooLarge(Exception):
    """An archive unpacks to more than is read."""


class Bounded:
    """A file of which no more than LARGEST bytes are read, one block after another."""

    def __init__(self, file):
        self.file, self.left = file, LARGEST

    def read(self, count):
        self.left -= count
        if self.left < 0:
            raise TooLarge
        return self.file.read(count)


def too_large():
    return f"larger than {LARGEST / 2**20:.3g} MB unpacked, which CIFAR-10 is not: {WHERE}"


def read_batch(name, content):
    """Images and labels of one file of either format."""
    if name.endswith(".bin"):
        if not content or len(content) % RECORD:
            raise ValueError(f"{name} has {len(content)} bytes, not a multiple of {RECORD}: damaged; {WHERE}")
        records = np.frombuffer(content, dtype=np.uint8).reshape(-1, RECORD)
        labels, images = records[:, 0].astype(np.int64), records[:, 1:]
    else:
        try:
            batch = ArraysOnly(io.BytesIO(content), encoding="bytes").load()
            labels = np.asarray(batch[b"labels"], dtype=np.int64)
            images = np.asarray(batch[b"data"], dtype=np.uint8).reshape(len(labels), RECORD - 1)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"{name} is not a CIFAR-10 batch ({type(error).__name__}: {error}); {WHERE}") from None
    if labels.min(initial=0) < 0 or labels.max(initial=0) > 9:
        raise ValueError(f"{name} has labels beyond 0 to 9: damaged; {WHERE}")
    return images.reshape(-1, 3, 32, 32), labels


def checked(path, files, used):
    """What the checksums say: those beside the files must agree; otherwise the original ones are compared with."""
    if "SHA256SUMS" in files:
        sums = read_sums(path, files["SHA256SUMS"])
        wrong = [name for name in used if name in sums and hashlib.sha256(files[name]).hexdigest() != sums[name]]
        if wrong:
            raise ValueError(f"{path}: {', '.join(wrong)} differ from SHA256SUMS: damaged; {WHERE}")
        return f"{sum(name in sums for name in used)} of {len(used)} files verified by SHA256SUMS"
    if path.is_file() and path.name in OFFICIAL:
        same = hashlib.md5(path.read_bytes()).hexdigest() == OFFICIAL[path.name]
        return "the original archive (MD5)" if same else "not the original archive (MD5 differs)"
    known = [name for name in used if name in OFFICIAL]
    same = sum(hashlib.md5(files[name]).hexdigest() == OFFICIAL[name] for name in known)
    return f"{same} of {len(used)} files are the original ones (MD5)" if known else "no checksums to compare with"


def read_sums(path, content):
    """Digests by name, from the lines that sha256sum writes; a ValueError that names a line that is not one."""
    if len(content) > LARGEST_SUMS:
        raise ValueError(f"SHA256SUMS of {path} is larger than {LARGEST_SUMS} bytes: not a list of checksums")
    sums = {}
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        parts = re.fullmatch(r"([0-9a-fA-F]{64}) [ *]?(\S+)\s*", line)
        if line.strip() and not parts:
            raise ValueError(
                f"SHA256SUMS of {path}, line {number}, is {line[:80]!r}: expected 64 hexadecimal digits and a name, as "
                "sha256sum writes them"
            )
        if parts and sums.setdefault(Path(parts[2]).name, parts[1].lower()) != parts[1].lower():
            raise ValueError(f"SHA256SUMS of {path}, line {number}, names {parts[2]!r} again, with another checksum")
    return sums
