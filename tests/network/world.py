"""The rest of the world, in a network namespace of its own: whoever is asked, answers.

    world.py CONTROL ADDRESS…

Every address answers on TCP 22, 53, 80, 443, 853, 2222 ("world", its own address and the asker's; "get N" brings N bytes,
"put N" takes N) and on UDP 53 (also as a resolver: every name is 198.51.100.10), 853, 9999. Whoever connects to CONTROL
(a unix socket) is told all packets that came since the last time, as lines "protocol source destination"."""
import select
import socket
import sys
import threading

TCP = (22, 53, 80, 443, 853, 2222)
UDP = (53, 853, 9999)
NAMED = "198.51.100.10"


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def take(s, n):
    while n > 0:
        got = s.recv(min(n, 65536))
        if not got:
            return
        n -= len(got)


def serve(s, peer):
    with s:
        try:
            s.sendall(f"world {s.getsockname()[0]} {peer[0]}\n".encode())
            words = s.makefile("rb", 0).readline().split()
            if words[:1] == [b"get"]:
                s.sendall(b"x" * int(words[1]))
            if words[:1] == [b"put"]:
                take(s, int(words[1]))
                s.sendall(b"taken\n")
        except OSError:
            pass


def listen(address, port):
    s = socket.socket(family(address), socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, port))
    s.listen(64)
    while True:
        c, peer = s.accept()
        threading.Thread(target=serve, args=(c, peer), daemon=True).start()


def resolve(query):
    """An answer with one address, whatever was asked."""
    end = query.index(b"\0", 12) + 5
    head = query[:2] + b"\x81\x80" + b"\0\1\0\1\0\0\0\0"
    return head + query[12:end] + b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(NAMED)


def answer(s, port):
    while True:
        data, peer = s.recvfrom(65536)
        text = f"world {s.getsockname()[0]} {peer[0]}".encode()
        is_query = port == 53 and len(data) > 16 and data[4:6] == b"\0\1"
        s.sendto(resolve(data) if is_query else text, peer)


def watch(control):
    """Every packet that comes in, until somebody asks."""
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    s = socket.socket(socket.AF_UNIX)
    s.bind(control)
    s.listen(4)
    seen = set()
    while True:
        for ready in select.select([raw, s], [], [])[0]:
            if ready is raw:
                data, (_, protocol, kind, *_) = raw.recvfrom(65536)
                if kind == socket.PACKET_OUTGOING:
                    continue
                if protocol == 0x800 and len(data) >= 20:
                    seen.add(f"{data[9]} {socket.inet_ntoa(data[12:16])} {socket.inet_ntoa(data[16:20])}")
                elif protocol == 0x86dd and len(data) >= 40:
                    a, b = (socket.inet_ntop(socket.AF_INET6, data[i:i + 16]) for i in (8, 24))
                    seen.add(f"{data[6]} {a} {b}")
                else:
                    seen.add(f"ether-{protocol:x} - -")
            else:
                with s.accept()[0] as c:
                    c.sendall("".join(line + "\n" for line in sorted(seen)).encode())
                seen.clear()


def main():
    control, addresses = sys.argv[1], sys.argv[2:]
    for address in addresses:
        for port in TCP:
            threading.Thread(target=listen, args=(address, port), daemon=True).start()
        for port in UDP:
            s = socket.socket(family(address), socket.SOCK_DGRAM)
            s.bind((address, port))
            threading.Thread(target=answer, args=(s, port), daemon=True).start()
    watch(control)


main()
