"""Hostile layers. cases(host, long) yields Case objects; host is a canary directory that links aim
at. `want` is the exit status, or ANY: whatever it does, it neither crashes nor escapes."""
import dataclasses
import gzip
import hashlib
import io
import random
import tarfile
import zlib

ANY = -1
OK, REFUSED, DIGEST = 0, 2, 3
DIR, SYM, HARD = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
CHR, BLK = tarfile.CHRTYPE, tarfile.BLKTYPE
X = b"owned"


@dataclasses.dataclass
class Case:
    name: str
    want: int
    blob: bytes
    tar: bytes = None  # what the diff id is of; None: nobody can say
    form: str = "plain"
    options: tuple = ()

    def diff_id(self):
        return hashlib.sha256(self.blob if self.tar is None else self.tar).hexdigest()


def entry(name, kind=tarfile.REGTYPE, data=b"", mode=0o644, uid=0, gid=0, link="", pax=None,
          dev=(0, 0), size=None):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.uid, info.gid, info.linkname = kind, mode, uid, gid, link
    info.mtime, info.size = 1, len(data) if size is None else size
    info.devmajor, info.devminor = dev
    info.pax_headers = pax or {}
    return info, data


def tar(*entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8",
                      errors="surrogateescape") as t:
        for info, data in entries:
            t.addfile(info, io.BytesIO(data) if data else None)
    return out.getvalue()


def plain(name, want, *entries, options=()):
    raw = tar(*entries)
    return Case(name, want, raw, raw, options=options)


def sparse(real, segments, data):
    """GNU sparse format 1.0."""
    table = f"{len(segments)}\n" + "".join(f"{at}\n{n}\n" for at, n in segments)
    table = table.encode()
    table += b"\0" * (-len(table) % 512)
    return entry("GNUSparseFile/s", data=table + data,
                 pax={"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "s",
                      "GNU.sparse.realsize": str(real)})


def names(host):
    yield plain("dotdot", REFUSED, entry("../evil", data=X))
    yield plain("dotdot-mid", REFUSED, entry("a/../../evil", data=X))
    yield plain("absolute", OK, entry("/etc/evil", data=X))
    yield plain("absolute-dotdot", REFUSED, entry("/../../../../../../evil", data=X))
    yield plain("newline", OK, entry("a\nb", data=X), entry("c\x1b[31md", data=X))
    yield plain("nul-name", ANY, entry("abc", data=X, pax={"path": "a\0b/../../x"}))
    yield plain("component-256", REFUSED, entry("x" * 256, data=X))
    yield plain("path-4096", REFUSED, entry("/".join(["y" * 200] * 21), data=X))
    yield plain("path-huge", REFUSED, entry("z/" * 400000 + "f", data=X))
    yield plain("path-2M", REFUSED, entry("z" * 2100000, data=X))
    yield plain("depth-300", REFUSED, entry("/".join(["d"] * 300), data=X))
    yield plain("dots", OK, entry("././/a//./b", data=X), entry("c/", DIR))
    yield plain("root-file", ANY, entry("./", data=X))
    yield plain("root-sym", REFUSED, entry(".", SYM, link=host))


def symlinks(host):
    a = entry("a", SYM, link=host)
    f = entry("a/evil", data=X)
    yield plain("sym-parent-rel", REFUSED, entry("a", SYM, link="../" * 8 + "tmp"), f)
    yield plain("sym-parent-in", OK, entry("d", DIR, mode=0o755), entry("a", SYM, link="/d"),
                entry("a/f", data=X))
    yield plain("sym-parent-host", REFUSED, a, f)
    yield plain("sym-proc", REFUSED, entry("a", SYM, link="/proc/self/root"), f)
    yield plain("sym-fd", REFUSED, entry("a", SYM, link="/proc/self/fd/3"), f)
    yield plain("sym-loop", REFUSED, entry("a", SYM, link="b"), entry("b", SYM, link="a"), f)
    yield plain("sym-leaf", OK, entry("a", SYM, link=host + "/evil"), entry("a", data=X))
    yield plain("sym-leaf-dir", OK, a, entry("a", DIR, mode=0o755), f)
    yield plain("dir-then-sym", REFUSED, entry("a", DIR), entry("a/b", DIR),
                entry("a/b/f", data=X), entry("a/b", SYM, link=host), entry("a/b/evil", data=X))
    yield plain("dir-cache", REFUSED, entry("a", DIR), entry("a/f", data=X),
                entry("b", SYM, link=host), entry("a/f", data=X), entry("b/f", data=X))


def hard_links(host):
    f = entry("f", data=X)
    s = entry("s", SYM, link=host + "/secret")
    yield plain("hard-out", REFUSED, entry("h", HARD, link="../../../../etc/passwd"))
    yield plain("hard-abs", REFUSED, entry("h", HARD, link="/etc/passwd"))
    yield plain("hard-sym", REFUSED, s, entry("h", HARD, link="s"), entry("h2", HARD, link="s/x"))
    yield plain("hard-sym-ok", OK, s, entry("h", HARD, link="s"))
    yield plain("hard-dir", REFUSED, entry("d", DIR), entry("h", HARD, link="d"))
    yield plain("hard-self", REFUSED, f, entry("f", HARD, link="./f"))
    yield plain("hard-missing", REFUSED, entry("h", HARD, link="lower/file"))
    yield plain("hard-whited", OK, f, entry("h", HARD, link="f"), entry(".wh.f"))
    yield plain("hard-to-whiteout", REFUSED, entry(".wh.f"), entry("h", HARD, link="f"))
    yield plain("hard-data", ANY, f, entry("h", HARD, data=X, link="f"), entry("g", data=b"g"))


def kinds(_host):
    null = entry("null", CHR, dev=(1, 3), mode=0o666)
    yield plain("device", OK, null, entry("sda", BLK, dev=(254, 0), mode=0o666),
                entry("f", data=X))
    yield plain("device-refuse", REFUSED, null, options=("--devices", "refuse"))
    yield plain("device-0-0", OK, entry("w", CHR, dev=(0, 0)))
    yield plain("suid", OK, entry("s", data=X, mode=0o6755))
    yield plain("type-unknown", ANY, entry("f", b"Z", data=X))
    yield plain("type-socket", ANY, entry("f", b"s", data=X))


def numbers(_host):
    for name, want, pax in (
            ("uid-negative", REFUSED, {"uid": "-1"}),
            ("uid-huge", REFUSED, {"uid": "99999999999"}),
            ("uid-64", REFUSED, {"uid": "18446744073709551616"}),
            ("size-negative", REFUSED, {"size": "-5"}),
            ("size-huge", REFUSED, {"size": "9223372036854775807"}),
            ("size-lie", REFUSED, {"size": "100000"})):
        yield plain(name, want, entry("f", data=X, pax=pax))
    yield plain("uid-4g", REFUSED, entry("f", data=X, uid=4294967295))
    yield plain("uid-max", OK, entry("f", data=X, uid=4294967294, gid=4294967294))
    yield plain("mtime", ANY, entry("f", data=X, pax={"mtime": "99999999999999.5"}),
                entry("g", data=X, pax={"mtime": "-1.5"}),
                entry("h", data=X, pax={"mtime": "nan"}))


def holes(_host):
    q = b"q" * 512
    yield plain("sparse-100g", REFUSED, sparse(100 << 30, [(99 << 30, 512)], q))
    yield plain("sparse-1g", OK, sparse(1 << 30, [(512 << 20, 512)], q))
    yield plain("sparse-overlap", ANY, sparse(4096, [(0, 512), (0, 512)], q * 2))
    yield plain("sparse-beyond", REFUSED, sparse(4096, [(1 << 40, 512)], q))
    yield plain("sparse-negative", REFUSED, sparse(4096, [(-512, 512)], q))
    yield plain("sparse-many", ANY,
                sparse(1 << 30, [(i * 8192, 1) for i in range(60000)], b"q" * 60000))


def xattrs(_host):
    s = "SCHILY.xattr."
    yield plain("xattr-overlay", OK,
                entry("d", DIR, mode=0o755, pax={
                    s + "trusted.overlay.redirect": "/etc", s + "trusted.overlay.opaque": "y",
                    s + "user.overlay.opaque": "y", s + "user.ok": "1"}),
                entry("f", data=X, pax={s + "trusted.overlay.metacopy": "",
                                        "LIBARCHIVE.xattr.trusted.overlay.redirect": "L2V0Yw=="}))
    yield plain("xattr-selinux", OK, entry("f", data=X, pax={
        s + "security.selinux": "x", s + "security.ima": "x", s + "system.posix_acl_access": "x",
        "SCHILY.acl.access": "user::rwx,group::r-x,other::r-x,user:1:rwx,mask::rwx"}))
    yield plain("xattr-bad-capability", OK,
                entry("f", data=X, pax={s + "security.capability": "zz"}))
    yield plain("xattr-big", REFUSED, entry("f", data=X, pax={s + "user.big": "v" * 70000}))
    yield plain("xattr-many", ANY,
                entry("f", data=X, pax={f"{s}user.k{i}": "v" * 100 for i in range(2000)}))


def whiteouts(host):
    a = entry("a", DIR, mode=0o755)
    b = entry("a/b", data=X)
    wh = entry(".wh.a")
    yield plain("wh-dot", REFUSED, entry(".wh.."))
    yield plain("wh-dotdot", REFUSED, entry("a", DIR), entry("a/.wh..."))
    yield plain("wh-empty", REFUSED, entry(".wh."))
    yield plain("wh-slash", REFUSED, entry(".wh./x", data=X))
    yield plain("wh-parent", REFUSED, entry(".wh.d/x", data=X))
    yield plain("wh-aufs", OK, entry(".wh..wh.plnk", DIR), entry(".wh..wh.plnk/1.2", data=X),
                entry(".wh..wh.aufs", data=X))
    yield plain("wh-in-wh", REFUSED, wh, b)
    yield plain("wh-then-dir", OK, wh, a, b)
    yield plain("dir-then-wh", OK, a, b, wh)
    yield plain("wh-then-file", OK, wh, entry("a", data=X))
    yield plain("wh-twice", OK, wh, wh)
    yield plain("opaque-root", OK, entry(".wh..wh..opq"), entry("f", data=X))
    yield plain("opaque-late", OK, entry("a", DIR), entry("a/f", data=X), entry("a/.wh..wh..opq"))
    yield plain("opaque-through-sym", REFUSED, entry("a", SYM, link=host),
                entry("a/.wh..wh..opq"))


def repeats(_host):
    yield plain("twice-file", OK, entry("f", data=b"1"), entry("f", data=b"22", mode=0o600),
                entry("d", DIR), entry("d", DIR, mode=0o700), entry("d", data=X))
    yield plain("twice-closed-dir", OK, entry("d", DIR, mode=0, uid=1000),
                entry("d", DIR, mode=0, uid=1001), entry("./", DIR, mode=0),
                entry("./", DIR, mode=0o700))
    yield plain("dir-by-file", REFUSED, entry("d", DIR), entry("d/f", data=X),
                entry("d", data=X))
    yield plain("file-as-parent", REFUSED, entry("f", data=X), entry("f/g", data=X))


def frames(_host):
    """Broken and decorated archives and compressions."""
    noise = random.Random(1).randbytes
    big = tar(entry("f", data=b"k" * 100000))
    ok = tar(entry("f", data=X))
    packed = gzip.compress(ok)
    yield Case("truncated", REFUSED, big[:50000])
    yield Case("truncated-header", ANY, tar(entry("f", data=b"k" * 100))[:300])
    yield Case("trailing", OK, ok + b"G" * 100000)
    yield Case("second-tar", OK, ok + tar(entry("../evil", data=X)))
    yield Case("zero-bytes", REFUSED, b"")
    yield Case("only-zeros", OK, b"\0" * 1024)
    yield Case("garbage", REFUSED, noise(100000))
    yield Case("checksum", REFUSED, b"a" * 512 + b"\0" * 1024)
    yield Case("not-gzip", REFUSED, b"\x1f\x8b" + noise(1000), form="gzip")
    yield Case("empty-gzip", REFUSED, gzip.compress(b""), b"", "gzip")
    yield Case("gzip-trailing", OK, packed + b"JUNK" * 1000, ok, "gzip")
    yield Case("gzip-cut", REFUSED, gzip.compress(noise(1) * 10 + ok + noise(5000))[:-2000],
               form="gzip")
    yield Case("gzip-bad-crc", ANY, packed[:-8] + b"\0" * 8, ok, "gzip")
    yield Case("gzip-two", OK, gzip.compress(ok[:700]) + gzip.compress(ok[700:]), ok, "gzip")
    yield Case("gzip-in-gzip", REFUSED, gzip.compress(packed), packed, "gzip")
    yield Case("gzip-as-zstd", REFUSED, packed, ok, "zstd")
    yield Case("other-diff-id", DIGEST, ok, tar(entry("g", data=X)))


def bomb(_host):
    """Two GiB of zeros, a thousand to one."""
    pack = zlib.compressobj(9, zlib.DEFLATED, 31)
    head, _ = entry("bomb", size=2 << 30)
    out = [pack.compress(head.tobuf(tarfile.GNU_FORMAT))]
    zeros = b"\0" * (1 << 24)
    out += [pack.compress(zeros) for _ in range(2 << 6)]
    yield Case("bomb", REFUSED, b"".join(out) + pack.flush(), form="gzip")


def many(_host, count):
    pack = zlib.compressobj(1, zlib.DEFLATED, 31)
    out = [pack.compress(entry(f"e/{i >> 12}/{i}")[0].tobuf(tarfile.USTAR_FORMAT))
           for i in range(count)]
    return Case("million" if count > 1000000 else "many-entries", REFUSED,
                b"".join(out) + pack.compress(b"\0" * 1024) + pack.flush(), form="gzip",
                options=() if count > 1000000 else ("--max-entries", str(count - 1)))


def cases(host, long):
    for group in (names, symlinks, hard_links, kinds, numbers, holes, xattrs, whiteouts, repeats,
                  frames, bomb):
        yield from group(host)
    yield many(host, 2000)
    if long:
        yield many(host, 1000001)
