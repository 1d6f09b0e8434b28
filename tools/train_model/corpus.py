"""Obtains the training text from Debian packages and cuts it into passages.

Two sources, both out of copyright (the model card names versions and licences):
  bible-kjv-text   King James Version (1611), read with the `bible` program of bible-kjv
  r-cran-janeaustenr  Jane Austen's six novels (1811-1818), read from the package's R store

Packages are fetched with `apt-get download` and unpacked with `dpkg -x` into a working folder:
nothing is installed and no root rights are needed.
"""

import bz2
import gzip
import lzma
import os
import re
import struct
import subprocess
import zlib

PACKAGES = ("bible-kjv", "bible-kjv-text", "r-cran-janeaustenr")
NOVELS = ("sensesensibility", "prideprejudice", "mansfieldpark", "emma", "northangerabbey",
          "persuasion")


def fetch_packages(folder):
    """Downloads and unpacks PACKAGES under `folder`; returns {package: version}."""
    os.makedirs(folder, exist_ok=True)
    versions = {}
    for package in PACKAGES:
        unpacked = os.path.join(folder, package)
        if not os.path.isdir(unpacked):
            subprocess.run(["apt-get", "download", package], cwd=folder, check=True)
            archive = next(f for f in sorted(os.listdir(folder)) if f.startswith(package + "_"))
            subprocess.run(["dpkg", "-x", archive, package], cwd=folder, check=True)
        archive = next(f for f in sorted(os.listdir(folder)) if f.startswith(package + "_"))
        versions[package] = archive.split("_")[1].replace("%3a", ":")
    return versions


# --- King James Version ---------------------------------------------------------------------------


def read_kjv(folder):
    """Returns the chapters, each a list of verses."""
    program = os.path.join(folder, "bible-kjv", "usr/bin/bible")
    texts = os.path.join(folder, "bible-kjv-text", "usr/lib")
    listing = subprocess.run([program, "-p", texts, "-f", "gen1:1-rev22:21"], check=True,
                             stdin=subprocess.DEVNULL, capture_output=True).stdout.decode("ascii")
    chapters, key = [], None
    for line in listing.splitlines():
        found = re.match(r"(\w+?\d+):\d+ (.*)", line)
        if not found:
            continue
        if found.group(1) != key:
            key = found.group(1)
            chapters.append([])
        chapters[-1].append(clean(found.group(2)))
    return chapters


# --- Jane Austen: R's lazy-load store -------------------------------------------------------------


class RReader:
    """Reads the part of R's XDR serialization that character vectors and lists need."""

    def __init__(self, content):
        assert content[:2] == b"X\n", "not an XDR stream"
        self.bytes, self.at, self.seen = content, 2, []
        if self.integers(3)[0] == 3:
            size, = self.integers(1)  # version 3 names its native encoding
            self.at += size

    def integers(self, count):
        values = struct.unpack_from(">%di" % count, self.bytes, self.at)
        self.at += 4 * count
        return values

    def item(self):
        flags, = self.integers(1)
        kind, has_attributes, has_tag = flags & 255, flags & 512, flags & 1024
        if kind in (254, 242, 253):  # NULL, empty and global environments
            return None
        if kind == 255:  # back reference
            return self.seen[((flags >> 8) or self.integers(1)[0]) - 1]
        if kind == 1:  # symbol
            self.seen.append(self.item())
            return self.seen[-1]
        if kind == 2:  # pair list
            if has_attributes:
                self.item()
            tag = self.item() if has_tag else None
            head = (tag, self.item())
            return [head] + (self.item() or [])
        if kind == 9:  # one string
            size, = self.integers(1)
            text = None if size < 0 else self.bytes[self.at:self.at + size]
            self.at += max(size, 0)
            encoding = "utf-8" if flags & (8 << 12) else "latin-1"
            return None if text is None else text.decode(encoding)
        size, = self.integers(1)
        if kind in (10, 13):
            value = list(self.integers(size))
        elif kind in (16, 19):
            value = [self.item() for _ in range(size)]
        else:
            raise ValueError("R type %d is not read here" % kind)
        if has_attributes:
            names = dict(self.item()).get("names")
            value = dict(zip(names, value)) if names else value
        return value


def read_r_block(content):
    """Decompresses one entry of an .rdb file: length, optional kind letter, body."""
    letter, body = content[4:5], content[5:]
    if letter == b"Z":
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 6}]
        return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters).decompress(body)
    if letter == b"2":
        return bz2.decompress(body)
    return zlib.decompress(content[4:])


def read_austen(folder):
    """Returns {novel: lines as printed}."""
    stem = os.path.join(folder, "r-cran-janeaustenr",
                        "usr/lib/R/site-library/janeaustenr/data/Rdata")
    with open(stem + ".rdx", "rb") as f:
        index = RReader(gzip.decompress(f.read())).item()
    with open(stem + ".rdb", "rb") as f:
        store = f.read()
    novels = {}
    for name in NOVELS:
        start, size = index["variables"][name]
        lines = RReader(read_r_block(store[start:start + size])).item()
        novels[name] = [line or "" for line in lines]
    return novels


def paragraphs_of(lines):
    """Joins printed lines into paragraphs; title pages and chapter headings are left out."""
    paragraphs, current = [], []
    for line in lines + [""]:
        if line.strip():
            current.append(line.strip())
        elif current:
            paragraphs.append(clean(" ".join(current)))
            current = []
    heading = re.compile(r"(chapter|volume|the end|finis|by jane)\b|[A-Z &']+$", re.I)
    return [p for p in paragraphs if len(p) > 20 and not (len(p) < 60 and heading.match(p))]


def clean(text):
    """Plain ASCII, single spaces, no typographic marks of emphasis."""
    for mark, plain in (("\u201c", '"'), ("\u201d", '"'), ("\u2019", "'"), ("\u2018", "'"),
                        ("\u2014", "--"), ("\u00e9", "e"), ("\u00ea", "e"), ("\u00e8", "e"),
                        ("_", ""), ("{", ""), ("}", ""), ("[", ""), ("]", "")):
        text = text.replace(mark, plain)
    return re.sub(r"\s+", " ", text.encode("ascii", "ignore").decode()).strip()


# --- Passages -------------------------------------------------------------------------------------

SENTENCE_END = re.compile(r'(?<!\bMr)(?<!\bMrs)(?<!\bDr)(?<!\bSt)(?<!\b[A-Z])([.!?]["\')]*) +'
                          r'(?=["\'(]*[A-Z])')


def sentences_of(paragraph):
    return SENTENCE_END.sub(lambda m: m.group(1) + "\n", paragraph).split("\n")


def load(folder):
    """Returns {shelf: documents}; a document is a list of paragraphs, each a list of sentences.

    A chapter of the Bible is one document and its verses are the sentences; five make a paragraph.
    """
    shelves = {"scripture": [], "novels": []}
    for verses in read_kjv(folder):
        shelves["scripture"].append([verses[i:i + 5] for i in range(0, len(verses), 5)])
    for lines in read_austen(folder).values():
        paragraphs = [sentences_of(p) for p in paragraphs_of(lines)]
        for i in range(0, len(paragraphs), 20):
            shelves["novels"].append(paragraphs[i:i + 20])
    return shelves


def plain_text(document):
    return "\n".join(" ".join(sentences) for sentences in document)
