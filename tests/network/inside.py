"""Runs in a sandbox, as its root, with nothing but socket and struct. Arguments are seconds and probes, all begun at once; so much later a
line for each: what came back, or "nothing", or why it could not even be tried.

    tcp|udp ADDRESS PORT · from SOURCE ADDRESS PORT (a source that is not its own) · bcast ADDRESS PORT
    raw PROTOCOL SOURCE DESTINATION HEX (an IP packet of its own making) · frag SOURCE DESTINATION PORT (the same in pieces)
    frame ETHERTYPE HEX (a whole frame; what comes back is an ARP or IPv6 frame) · mac SOURCE DESTINATION PORT (another sender's MAC)
    lsrr VIA ADDRESS PORT (source routing) · config WHAT (changes of its own interface)"""
import errno
import fcntl
import select
import socket
import struct
import sys
import time

IP_FREEBIND, IP_OPTIONS = 15, 4
HOST_MAC, OWN_MAC = bytes.fromhex("02626f746801"), bytes.fromhex("02626f746802")


def address_of(text):
    if ":" not in text:
        return socket.AF_INET, lambda port: (text, port)
    host, _, scope = text.partition("%")
    index = socket.if_nametoindex(scope) if scope else 0
    return socket.AF_INET6, lambda port: (host, port, 0, index)


def checksum(data):
    data += b"\0" * (len(data) % 2)
    n = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while n >> 16:
        n = (n & 0xffff) + (n >> 16)
    return ~n & 0xffff


def ip_packet(protocol, source, to, body, offset=0, more=False, ident=77):
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), ident, (0x2000 if more else 0) | offset // 8, 64, protocol, 0,
                       socket.inet_aton(source), socket.inet_aton(to))
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + body


def udp_body(port, data=b"hello"):
    return struct.pack("!HHHH", 4242, int(port), 8 + len(data), 0) + data


def packet_socket():
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.bind(("eth0", 0))
    return s


def send_ip(*packets):
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    for p in packets:
        s.sendto(p, (socket.inet_ntoa(p[16:20]), 0))
    return None


def tcp(address, port, options=b"", source=None):
    kind, to = address_of(address)
    s = socket.socket(kind, socket.SOCK_STREAM)
    s.setblocking(False)
    if options:
        s.setsockopt(socket.IPPROTO_IP, IP_OPTIONS, options)
    if source:
        s.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        s.bind((source, 0))
    r = s.connect_ex(to(int(port)))
    if r not in (0, errno.EINPROGRESS):
        raise OSError(r, errno.errorcode.get(r, str(r)))
    return s


def udp(address, port, broadcast=False):
    kind, to = address_of(address)
    s = socket.socket(kind, socket.SOCK_DGRAM)
    s.setblocking(False)
    if broadcast:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    s.sendto(b"hello", to(int(port)))
    return s


def frame(kind, data):
    s = packet_socket()
    s.send(b"\xff" * 6 + OWN_MAC + struct.pack("!H", int(kind, 16)) + bytes.fromhex(data))
    return s


def fragments(source, to, port):
    body = udp_body(port, b"h" * 40)
    return send_ip(ip_packet(17, source, to, body[:8], 0, True), ip_packet(17, source, to, body[8:24], 8, True),
                   ip_packet(17, source, to, body[24:], 24, False))


def other_mac(source, to, port):
    s = packet_socket()
    s.send(HOST_MAC + bytes.fromhex("02aabbccddee") + b"\x08\0" + ip_packet(17, source, to, udp_body(port)))


def change(what):
    """Each needs CAP_NET_ADMIN: the error is the answer."""
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    name = b"eth0".ljust(16, b"\0")
    inet = struct.pack("HH4s8x", 2, 0, socket.inet_aton("10.215.0.77"))
    if what == "address":
        fcntl.ioctl(s, 0x8916, name + inet)
    elif what == "mac":
        fcntl.ioctl(s, 0x8924, name + struct.pack("H6s8x", 1, b"\2\1\1\1\1\1"))
    elif what == "arp":
        fcntl.ioctl(s, 0x8914, name + struct.pack("H22x", 0x1043))
    elif what == "route":
        rt = struct.pack("L", 0) + struct.pack("HH4s8x", 2, 0, socket.inet_aton("198.51.100.0")) + inet + \
            struct.pack("HH4s8x", 2, 0, socket.inet_aton("255.255.255.0"))
        fcntl.ioctl(s, 0x890B, rt + struct.pack("H", 3) + b"\0" * 64)
    elif what == "interface":
        nl = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        info = struct.pack("HH", 8 + 6, 18) + struct.pack("HH", 10, 1) + b"dummy\0\0\0"
        body = struct.pack("BxHiII", 0, 0, 0, 0, 0) + info + b"\0" * (-len(info) % 4)
        nl.send(struct.pack("IHHII", 16 + len(body), 16, 0x605, 1, 0) + body)
        r = struct.unpack_from("i", nl.recv(4096), 16)[0]
        if r:
            raise OSError(-r, "refused")
    elif what == "sysctl":
        with open("/proc/sys/net/ipv4/conf/eth0/accept_redirects", "w") as f:
            f.write("1")
    raise OSError(0, "it was changed")


def begin(words):
    kind, *a = words
    if kind == "tcp":
        return tcp(*a)
    if kind == "udp":
        return udp(*a)
    if kind == "bcast":
        return udp(*a, broadcast=True)
    if kind == "from":
        return tcp(a[1], a[2], source=a[0])
    if kind == "lsrr":
        hops = socket.inet_aton(a[1])
        return tcp(a[0], a[2], options=b"\1\x83" + bytes([3 + len(hops), 4]) + hops)
    if kind == "raw":
        return send_ip(ip_packet(int(a[0]), a[1], a[2], udp_body(a[3][1:]) if a[3][0] == ":" else bytes.fromhex(a[3])))
    if kind == "frag":
        return fragments(*a)
    if kind == "frame":
        return frame(*a)
    if kind == "mac":
        return other_mac(*a)
    return change(*a)


def main():
    probes, waiting, said = [], {}, {}
    for i, text in enumerate(sys.argv[2:]):
        probes.append(text)
        try:
            s = begin(text.split())
            if s:
                waiting[s] = i
        except OSError as e:
            said[i] = "error " + errno.errorcode.get(e.errno, str(e.errno))
    end = time.monotonic() + float(sys.argv[1])
    while waiting and time.monotonic() < end:
        for s in select.select(list(waiting), [], [], max(0, end - time.monotonic()))[0]:
            i = waiting[s]
            try:
                got = s.recv(2048)
            except OSError as e:
                said[i] = "error " + errno.errorcode.get(e.errno, str(e.errno))
                del waiting[s]
                continue
            if probes[i].startswith("frame") and (got[6:12] != HOST_MAC or got[12:14] == b"\x08\0"):
                continue
            said[i] = "answer " + got.decode(errors="replace").strip().replace("\n", " ")
            del waiting[s]
    for i, text in enumerate(probes):
        print(f"{text}\t{said.get(i, 'nothing')}")


main()
