"""Files: up, down, names, users, directories, signed URLs."""
import asyncio
import hashlib
import inspect
import io
import os
import time

from client import A, Authentication, Invalid, NotFound, Skip, VERSION, behaviour, check, equal, exceptions, have, raises, takes

Any = exceptions("SandboxException", "NotFoundException", "InvalidArgumentException", "AuthenticationException", "TimeoutException",
                 "FileNotFoundException")
ODD_NAMES = ("sp ace.txt", "ž€😀.txt", "a+b&c=d%.txt", 'q"uo\'te.txt', "semi;co:lon.txt", "back\\slash", "#hash?query", " lead", "tab\there",
             "-dash", "x" * 200, "%2e%2e", "...")


def kind(entry):
    return getattr(entry.type, "value", entry.type)


@behaviour
async def write_text(t):
    info = await A(t.sb.files.write(f"{t.dir}/a.txt", "hello ž\n"))
    equal((info.name, info.path), ("a.txt", f"{t.dir}/a.txt"), "what write gives")
    equal(await A(t.sb.files.read(f"{t.dir}/a.txt")), "hello ž\n")
    equal(await t.out(f"cat {t.dir}/a.txt; stat -c %U {t.dir}/a.txt"), "hello ž\nuser\n")


@behaviour
async def write_bytes(t):
    blob = bytes(range(256)) * 5000
    await A(t.sb.files.write(f"{t.dir}/b", blob))
    equal(bytes(await A(t.sb.files.read(f"{t.dir}/b", format="bytes"))), blob, "what came back")


@behaviour
async def write_stream(t):
    blob = os.urandom(3000000)
    await A(t.sb.files.write(f"{t.dir}/c", io.BytesIO(blob)))
    equal((await t.out(f"sha256sum <{t.dir}/c")).split()[0], hashlib.sha256(blob).hexdigest(), "digest inside")


@behaviour
async def read_stream(t):
    await t.run(f"mkdir -p {t.dir}; seq 300000 >{t.dir}/d")
    got = b""
    parts = await A(t.sb.files.read(f"{t.dir}/d", format="stream"))
    if hasattr(parts, "__aiter__"):
        async for part in parts:
            got += part
    else:
        for part in parts:
            got += part
    equal(got, b"".join(b"%d\n" % i for i in range(1, 300001)), "what came")


@behaviour
async def write_empty(t):
    await A(t.sb.files.write(f"{t.dir}/e", ""))
    equal(await A(t.sb.files.read(f"{t.dir}/e")), "")


@behaviour
async def write_big(t):
    """50 MB there and back."""
    blob = os.urandom(1 << 20) * (t.big >> 20)
    slow = {"request_timeout": 90} if takes(t.sb.files.write, "request_timeout") else {}
    await A(t.sb.files.write(f"{t.dir}/big", blob, **slow))
    equal((await t.out(f"sha256sum <{t.dir}/big")).split()[0], hashlib.sha256(blob).hexdigest(), "digest inside")
    got = bytes(await A(t.sb.files.read(f"{t.dir}/big", format="bytes", **slow)))
    check(got == blob, f"{len(got)} bytes came back, others")
    await A(t.sb.files.remove(f"{t.dir}/big"))


@behaviour
async def write_many(t):
    files = [{"path": f"{t.dir}/m/{i}", "data": f"{i}" if i % 2 else f"{i}".encode()} for i in range(30)]
    write = getattr(t.sb.files, "write_files", None) or t.sb.files.write
    got = await A(write(files))
    equal([one.name for one in got], [str(i) for i in range(30)], "what it gives")
    equal(await A(t.sb.files.read(f"{t.dir}/m/17")), "17")
    equal(await t.out(f"cat {t.dir}/m/* | wc -c"), "50\n", "bytes of all")


@behaviour
async def write_makes_parents(t):
    await A(t.sb.files.write(f"{t.dir}/x/y/z/f", "deep"))
    equal(await t.out(f"cat {t.dir}/x/y/z/f; stat -c %U {t.dir}/x/y"), "deepuser\n")


@behaviour
async def write_over(t):
    await A(t.sb.files.write(f"{t.dir}/o", "a long text"))
    await A(t.sb.files.write(f"{t.dir}/o", "short"))
    equal(await A(t.sb.files.read(f"{t.dir}/o")), "short")


@behaviour
async def write_keeps_mode(t):
    await t.run(f"mkdir -p {t.dir}; echo '#!/bin/sh' >{t.dir}/s; chmod 755 {t.dir}/s")
    await A(t.sb.files.write(f"{t.dir}/s", "#!/bin/sh\necho ran\n"))
    equal(await t.out(f"{t.dir}/s"), "ran\n")


@behaviour
async def write_relative(t):
    await A(t.sb.files.write(f"rel-{t.tag}/f", "home"))
    equal(await t.out(f"cat /home/user/rel-{t.tag}/f"), "home")
    equal(await A(t.sb.files.read(f"rel-{t.tag}/f")), "home")


@behaviour
async def odd_names(t):
    for name in ODD_NAMES:
        await A(t.sb.files.write(f"{t.dir}/{name}", name))
        equal(await A(t.sb.files.read(f"{t.dir}/{name}")), name, f"{name!r}")
    equal(sorted(e.name for e in await A(t.sb.files.list(t.dir))), sorted(ODD_NAMES), "the list")
    for name in ODD_NAMES:
        check(await A(t.sb.files.exists(f"{t.dir}/{name}")), f"{name!r} is not there")
        await A(t.sb.files.remove(f"{t.dir}/{name}"))
    equal(await A(t.sb.files.list(t.dir)), [], "what is left")


@behaviour
async def odd_names_many(t):
    write = getattr(t.sb.files, "write_files", None) or t.sb.files.write
    names = [n for n in ODD_NAMES if not set('\\"%\t') & set(n)]
    await A(write([{"path": f"{t.dir}/{name}", "data": name} for name in names]))
    equal(sorted(e.name for e in await A(t.sb.files.list(t.dir))), sorted(names), "the list")


def write_as(t, path, text, user):
    """By position where it cannot be named."""
    return t.sb.files.write(path, text, user=user) if takes(t.sb.files.write, "user") else t.sb.files.write(path, text, user)


@behaviour
async def write_as_root(t):
    await A(write_as(t, f"/root/{t.tag}", "root's", "root"))
    equal(await t.out(f"stat -c %U /root/{t.tag}", user="root"), "root\n")
    equal(await A(t.sb.files.read(f"/root/{t.tag}", user="root")), "root's")


@behaviour
async def write_denied(t):
    await raises(Any, lambda: t.sb.files.write("/root/denied", "x"))
    equal(await t.out("ls /root | grep -c denied; true", user="root"), "0\n", "files it made")


@behaviour
async def read_denied(t):
    await t.run("echo hidden >/root/hidden; chmod 600 /root/hidden; chmod 711 /root", user="root")
    e = await raises(Any, lambda: t.sb.files.read("/root/hidden"))
    check("hidden\n" not in str(e), e)


@behaviour
async def write_unknown_user(t):
    await raises(Any, lambda: write_as(t, f"{t.dir}/u", "x", "nosuchuser"))


@behaviour
async def write_onto_directory(t):
    await raises(Any, lambda: t.sb.files.write("/tmp", "x"))


@behaviour
async def read_missing(t):
    e = await raises(NotFound, lambda: t.sb.files.read("/no/such/file"))
    check("/no/such/file" in str(e), e)


@behaviour
async def read_directory(t):
    await raises(Any, lambda: t.sb.files.read("/usr"))


@behaviour
async def read_proc(t):
    """Of no size, and yet not empty."""
    check("PPid" in await A(t.sb.files.read("/proc/self/status")))


@behaviour
async def files_at_once(t):
    await asyncio.gather(*(t.spawn(lambda i=i: t.sb.files.write(f"{t.dir}/p{i}", f"{i}" * 1000)) for i in range(20)))
    got = await asyncio.gather(*(t.spawn(lambda i=i: t.sb.files.read(f"{t.dir}/p{i}")) for i in range(20)))
    equal(got, [f"{i}" * 1000 for i in range(20)], "what came back")


@behaviour
async def gzip(t):
    have(takes(t.sb.files.write, "gzip"), "gzip")
    text = "zipped ž\n" * 20000
    await A(t.sb.files.write(f"{t.dir}/z", text, gzip=True))
    equal(await t.out(f"wc -c <{t.dir}/z"), f"{len(text.encode())}\n", "bytes inside")
    equal(await A(t.sb.files.read(f"{t.dir}/z", gzip=True)), text)


@behaviour
async def octet_stream(t):
    have(takes(t.sb.files.write, "use_octet_stream"), "use_octet_stream")
    blob = os.urandom(100000)
    for way in (True, False):
        await A(t.sb.files.write(f"{t.dir}/os", blob, use_octet_stream=way))
        equal(bytes(await A(t.sb.files.read(f"{t.dir}/os", format="bytes"))), blob, f"use_octet_stream={way}")


@behaviour
async def file_metadata(t):
    have(takes(t.sb.files.write, "metadata"), "metadata of files")
    await A(t.sb.files.write(f"{t.dir}/md", "x", metadata={"colour": "green", "n": "1"}))
    equal((await A(t.sb.files.get_info(f"{t.dir}/md"))).metadata, {"colour": "green", "n": "1"}, "metadata")


@behaviour
async def list_directory(t):
    await t.run(f"mkdir -p {t.dir}/sub/deep; echo 12345 >{t.dir}/f; ln -s f {t.dir}/l; touch {t.dir}/.hidden")
    got = {e.name: (kind(e), e.path) for e in await A(t.sb.files.list(t.dir))}
    equal({k: v for k, v in got.items() if k != "l"},
          {"sub": ("dir", f"{t.dir}/sub"), "f": ("file", f"{t.dir}/f"), ".hidden": ("file", f"{t.dir}/.hidden")}, "entries")
    check("l" in got, "the link is missing")


@behaviour
async def list_depth(t):
    have(takes(t.sb.files.list, "depth"), "depth")
    await t.run(f"mkdir -p {t.dir}/1/2/3; touch {t.dir}/1/2/f")
    for depth, count in ((1, 1), (2, 2), (3, 4)):
        equal(len(await A(t.sb.files.list(t.dir, depth=depth))), count, f"entries of depth {depth}")
    await raises(Any, lambda: t.sb.files.list(t.dir, depth=0))


@behaviour
async def list_many(t):
    await t.run(f"mkdir -p {t.dir}; cd {t.dir}; seq -f 'file-%g' 2000 | xargs touch")
    equal(len(await A(t.sb.files.list(t.dir))), 2000, "entries")


@behaviour
async def list_missing(t):
    await raises(NotFound, lambda: t.sb.files.list("/no/such/dir"))


@behaviour
async def list_of_file(t):
    await raises(Any, lambda: t.sb.files.list("/etc/passwd"))


@behaviour
async def list_home(t):
    await A(t.sb.files.write("in-home", "x"))
    check("in-home" in [e.name for e in await A(t.sb.files.list("."))])


@behaviour
async def exists(t):
    equal([await A(t.sb.files.exists(p)) for p in ("/etc/passwd", "/etc", "/no/such", "/etc/passwd/below")], [True, True, False, False])


@behaviour
async def file_info(t):
    have(hasattr(t.sb.files, "get_info"), "get_info of files")
    await A(t.sb.files.write(f"{t.dir}/i", "12345"))
    await t.run(f"chmod 640 {t.dir}/i; ln -s i {t.dir}/l")
    info = await A(t.sb.files.get_info(f"{t.dir}/i"))
    equal((info.name, info.path, kind(info), info.size, info.mode & 0o777, info.permissions, info.owner, info.group),
          ("i", f"{t.dir}/i", "file", 5, 0o640, "-rw-r-----", "user", "user"), "info")
    check(abs(info.modified_time.timestamp() - time.time()) < 300, info.modified_time)
    equal(kind(await A(t.sb.files.get_info(t.dir))), "dir", "type of a directory")
    if hasattr(info, "symlink_target"):
        link = await A(t.sb.files.get_info(f"{t.dir}/l"))
        check((link.symlink_target or "").endswith("i"), link)


@behaviour
async def file_info_missing(t):
    have(hasattr(t.sb.files, "get_info"), "get_info of files")
    await raises(NotFound, lambda: t.sb.files.get_info("/no/such/file"))


@behaviour
async def make_dir(t):
    equal([await A(t.sb.files.make_dir(f"{t.dir}/a/b/c")) for _ in range(2)], [True, False], "made, and made again")
    equal(await t.out(f"stat -c '%U %F' {t.dir}/a/b/c"), "user directory\n")


@behaviour
async def make_dir_over_file(t):
    await A(t.sb.files.write(f"{t.dir}/f", "x"))
    await raises(Any, lambda: t.sb.files.make_dir(f"{t.dir}/f/below"))


@behaviour
async def make_dir_denied(t):
    await raises(Any, lambda: t.sb.files.make_dir("/usr/denied"))
    equal(await A(t.sb.files.make_dir(f"/usr/{t.tag}", user="root")), True, "as root")


@behaviour
async def rename(t):
    await A(t.sb.files.write(f"{t.dir}/old", "moved"))
    info = await A(t.sb.files.rename(f"{t.dir}/old", f"{t.dir}/new"))
    equal((info.name, info.path, kind(info)), ("new", f"{t.dir}/new", "file"), "what it gives")
    equal(await A(t.sb.files.read(f"{t.dir}/new")), "moved")
    equal(await A(t.sb.files.exists(f"{t.dir}/old")), False, "the old name")


@behaviour
async def rename_directory(t):
    await A(t.sb.files.write(f"{t.dir}/one/f", "inside"))
    await A(t.sb.files.rename(f"{t.dir}/one", f"{t.dir}/two"))
    equal(await A(t.sb.files.read(f"{t.dir}/two/f")), "inside")


@behaviour
async def rename_missing(t):
    await raises(NotFound, lambda: t.sb.files.rename(f"{t.dir}/nope", f"{t.dir}/x"))


@behaviour
async def remove(t):
    await t.run(f"mkdir -p {t.dir}/tree/a; touch {t.dir}/tree/a/f {t.dir}/f; ln -s /etc {t.dir}/tree/l")
    await A(t.sb.files.remove(f"{t.dir}/f"))
    await A(t.sb.files.remove(f"{t.dir}/tree"))
    equal(await A(t.sb.files.list(t.dir)), [], "what is left")
    check(await A(t.sb.files.exists("/etc/passwd")), "a link was followed")


@behaviour
async def remove_missing(t):
    await A(t.sb.files.remove(f"{t.dir}/nope"))


def url_of(method, path, **options):
    if takes(method, "use_signature"):
        options["use_signature"] = True
    return method(path, **options)


def signs(t):
    have(t.secure, "signed URLs (or it is tried without a token)")


@behaviour
async def signed_download(t):
    signs(t)
    await A(t.sb.files.write(f"{t.dir}/s ž+.txt", "signed"))
    equal(t.fetch(url_of(t.sb.download_url, f"{t.dir}/s ž+.txt")), (200, b"signed"), "answer")
    equal(t.fetch(url_of(t.sb.download_url, f"{t.dir}/s ž+.txt", use_signature_expiration=60 if VERSION >= (1, 6, 0) else int(time.time()) + 60)),
          (200, b"signed"), "answer with an end")
    equal(t.fetch(url_of(t.sb.download_url, f"{t.dir}/s ž+.txt", user="root")), (200, b"signed"), "answer for root")


@behaviour
async def signed_upload(t):
    signs(t)
    url = url_of(t.sb.upload_url, f"{t.dir}/up.txt")
    body = b'--B\r\nContent-Disposition: form-data; name="file"; filename="any"\r\n\r\nuploaded\r\n--B--\r\n'
    status, answer = t.fetch(url, "POST", body, {"Content-Type": "multipart/form-data; boundary=B"})
    equal(status, 200, f"status ({answer})")
    equal(await A(t.sb.files.read(f"{t.dir}/up.txt")), "uploaded")


@behaviour
async def signed_wrong(t):
    signs(t)
    await A(t.sb.files.write(f"{t.dir}/s", "signed"))
    url = url_of(t.sb.download_url, f"{t.dir}/s")
    equal(t.fetch(url.replace("signature=v1_", "signature=v1_x"))[0], 401, "status of a changed signature")
    equal(t.fetch(url.replace("%2Fs&", "%2Ft&").replace("/s&", "/t&"))[0], 401, "status of a changed path")
    equal(t.fetch(url, "POST", b"", {"Content-Type": "application/octet-stream"})[0], 401, "status of a write")


@behaviour
async def signed_expired(t):
    signs(t)
    await A(t.sb.files.write(f"{t.dir}/s", "signed"))
    url = url_of(t.sb.download_url, f"{t.dir}/s", use_signature_expiration=1)
    await asyncio.sleep(2.5)
    equal(t.fetch(url)[0], 401, "status")
