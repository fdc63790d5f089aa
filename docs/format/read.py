#!/usr/bin/env python3
"""Lists the records of a topic from the folder of a Tidemark bucket: read.py FOLDER TOPIC[.ID] [FROM_OFFSET]

One JSON line a record, in the order of partitions and offsets; what aborted transactions wrote is left out. It needs nothing
but Python 3; where a chain was trimmed or records are packed by zstd: 3.14, or the module zstandard, or the program zstd.
README.md says what it reads.
"""
import hashlib, json, os, re, struct, subprocess, sys, zlib

TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def check(fine, *what):
    if not fine:
        sys.exit("damaged: " + " ".join(map(str, what)))


def read(*path):
    with open(os.path.join(*path), "rb") as f:
        return f.read()


def unseal(body):
    """The JSON of a chain's object, whose checksum covers all before it."""
    at = body.rindex(b',"crc32c":"')
    check(crc32c(body[:at]) == int(body[at + 11 : at + 19], 16), body[:80])
    return json.loads(body)


def unzstd(data):
    """What zstd has packed, by what there is: the standard library can do it only since Python 3.14."""
    try:
        from compression import zstd

        return zstd.decompress(data)
    except ImportError:
        pass
    try:
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    except ImportError:
        pass
    try:
        done = subprocess.run(["zstd", "-dc"], input=data, stdout=subprocess.PIPE)
    except FileNotFoundError:
        sys.exit("this is packed by zstd: use Python 3.14, or install the module zstandard or the program zstd")
    check(done.returncode == 0, "what zstd has packed")
    return done.stdout


def chain(folder):
    """The newest state that has to be begun with, or None, and the records of the entries after it, with their epochs."""
    names = os.listdir(folder)
    boundary = max(map(int, os.listdir(folder + "/boundary")), default=0) if "boundary" in names else 0
    state, number, last = None, 0, "0" * 64
    if boundary:
        snapshots = [n for n in names if n.endswith(".snapshot.json.zst") and int(n[:20]) >= boundary]
        snapshot = unseal(unzstd(read(folder, max(snapshots))))
        state, position = snapshot["state"], snapshot["position"]
        number, last = position["number"], position["hash"]
    entries = []
    while (name := "%020d.json" % (number + 1)) in names:
        body = read(folder, name)
        entry, number = unseal(body), number + 1
        check(entry["number"] == number and entry["prev_hash"] == last, name, "does not follow")
        last = hashlib.sha256(body).hexdigest()
        entries += entry["records"]
    check(not any(re.fullmatch(r"\d{20}\.json", n) and int(n[:20]) > number for n in names), folder, "has a gap")
    return state, entries


def manifest(folder):
    """Log start, end and live segments of a partition."""
    state, records = chain(folder + "/manifest")
    state = state or {"log_start": 0, "end": 0}
    start, end, live = state["log_start"], state["end"], []
    for p in state.get("pages", []):
        body = read(folder, "pages", stem(p) + ".json")
        check(hashlib.sha256(body).hexdigest() == p["sha256"], "page", stem(p))
        live += [s for s in json.loads(body)["segments"] if s["start"] >= p["start"] and s["end"] <= p["end"]]
    live += state.get("segments", [])
    for r in records:
        kind, gone = r["type"], [stem(s) for s in r.get("segments", [])] if r["type"] in ("drop", "cut") else []
        check(kind in ("add", "start", "drop", "deleted", "cut", "lost", "close", "page"), "what is", kind)
        live = [s for s in live if stem(s) not in gone]
        if kind == "add":
            live.append(r)
        elif kind == "start":
            start = r["log_start"]
        elif kind == "cut" and r.get("clipped"):
            live = [s for s in live if stem(s) != stem(r["clipped"])] + [r["clipped"]]
        end = max(r["end"] if kind in ("add", "cut", "lost") else end, start)
    return start, end, live


def stem(s):
    return "%020d-%d-%s" % (s["base"], s["epoch"], s["nonce"])


def sidecar(folder, s):
    """The sections of a segment's sidecar."""
    data = read(folder, stem(s) + ".aux")
    length, crc = struct.unpack(">II", data[8:16])
    check(data[:8] == b"TIDEAUX1" and crc32c(data[16 : 16 + length]) == crc, stem(s) + ".aux")
    parts, body = {}, data[16 + length :]
    for p in json.loads(data[16 : 16 + length])["sections"]:
        part = parts[p["name"]] = body[p["offset"] : p["offset"] + p["length"]]
        check(crc32c(part) == int(p["crc32c"], 16), stem(s) + ".aux", p["name"])
    return parts


def unpack(codec, data):
    if codec == 1:
        return zlib.decompress(data, 31)
    if codec == 4:
        return unzstd(data)
    check(codec == 0, "no decoder for codec", codec, "(2 is snappy, 3 is lz4)")
    return data


class Fields:
    """Reads the fields of a record, one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def varint(self):
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at, value, shift = self.at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value >> 1 ^ -(value & 1)

    def text(self):
        length = self.varint()
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length : self.at].decode("utf-8", "backslashreplace")


def batches(data, at):
    """The batches from a position on: offset, attributes, producer, and the fields that records need."""
    while at < len(data):
        base, length = struct.unpack_from(">qi", data, at)
        batch, at = data[at : at + 12 + length], at + 12 + length
        magic, crc, attributes, _, first, largest, producer, _, _, count = struct.unpack_from(">bIhiqqqhii", batch, 16)
        check(magic == 2 and crc32c(batch[21:]) == crc, "batch at offset", base)
        yield base, attributes, producer, first, largest, count, batch[61:]


def records(partition, folder, wanted):
    start, end, live = manifest(folder)
    sidecars = {stem(s): sidecar(folder, s) for s in live}
    aborted = []  # transactions: producer, first offset, last offset
    for s in live:
        entries = struct.iter_unpack(">hqqqq", sidecars[stem(s)]["transaction_index"])
        aborted += [(producer, first, last) for _, producer, first, last, _ in entries if last < s["end"]]
    for s in live:
        low, high = max(s["start"], start, wanted), min(s["end"], end)
        index = struct.iter_unpack(">II", sidecars[stem(s)]["offset_index"])
        position = max((p for o, p in index if s["base"] + o <= low), default=0)
        data = read(folder, stem(s) + ".log") if low < high else b""
        check(low >= high or len(data) == s["size"], stem(s) + ".log")
        for base, attributes, producer, first, largest, count, body in batches(data, position):
            if attributes & 32 or base >= high:  # a control batch: no record for clients
                continue
            if attributes & 16 and any(p == producer and f <= base <= l for p, f, l in aborted):
                continue
            fields = Fields(unpack(attributes & 7, body))
            for _ in range(count):
                follows = fields.varint() + fields.at
                fields.at += 1  # attributes, unused
                timestamp, offset = first + fields.varint(), base + fields.varint()
                key, value = fields.text(), fields.text()
                headers = [[fields.text(), fields.text()] for _ in range(fields.varint())]
                check(fields.at == follows, "record at offset", offset)
                if low <= offset < high:
                    yield {
                        "partition": partition, "offset": offset, "timestamp": largest if attributes & 8 else timestamp,
                        "key": key, "value": value, "headers": headers,
                    }


def main(bucket, topic, wanted="0"):
    topics = os.path.join(bucket, "topics")
    found = [t for t in os.listdir(topics) if topic == t or topic == t[:-23]]  # a dot and an id of 22 characters follow the name
    if len(found) != 1:
        sys.exit("there are %d topics of that name: %s" % (len(found), " ".join(found)))
    for partition in sorted(map(int, os.listdir(os.path.join(topics, found[0])))):
        for record in records(partition, os.path.join(topics, found[0], str(partition)), int(wanted)):
            print(json.dumps(record))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
