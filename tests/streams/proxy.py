"""A TCP proxy that cuts: in the request, in the head of the answer, in a chunk, in an event, right before the end; by FIN, by RST, on
one side only, after standing still.

It knows nothing of who speaks through it but three marks of an end. Every connection has a plan, drawn when it comes; a plan whose
place is never reached cuts nothing, and is not counted."""
import collections
import math
import random
import select
import socket
import struct
import threading
import time

PIECE = 65536
ENDS = (b"event: end\n", b'{"end":', b"\r\n0\r\n\r\n")
MODES = ("request", "answer", "head", "fin", "reset", "before_end", "half_server", "half_client", "stalled")
RESET = struct.pack("ii", 1, 0)


def reset(sock):
    """Both peers see ECONNRESET, and what was on its way is lost."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    sock.close()


class Plan:
    """Where to cut: `after` bytes of the answer (of the request if the mode says so); mode None lets everything pass."""

    def __init__(self, draw, share):
        self.mode = draw.choice(MODES) if draw.random() < share else None
        self.pause = draw.uniform(0.02, 0.4)
        if self.mode == "request":
            self.after = draw.randint(0, 200)
        elif self.mode == "answer":
            self.after = 0
        elif self.mode == "head":
            self.after = draw.randint(1, 200)
        elif self.mode == "before_end":
            self.after = None
        else:
            self.after = int(math.exp(draw.uniform(math.log(100), math.log(200_000))))


class Proxy:
    def __init__(self, upstream, seed, share):
        """share: of connections that have a plan to be cut. upstream: (host, port)."""
        self.upstream, self.share, self.draw = upstream, share, random.Random(seed)
        self.cuts, self.connections = collections.Counter(), 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.serve, args=(client, Plan(self.draw, self.share)), daemon=True).start()

    def close(self):
        self.listener.close()

    def serve(self, client, plan):
        try:
            server = socket.create_connection(self.upstream, timeout=10)
        except OSError:  # it has just been killed
            reset(client)
            return
        for s in (client, server):
            s.settimeout(60)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.carry(client, server, plan)
        except OSError:
            pass
        finally:
            client.close()
            server.close()

    def carry(self, client, server, plan):
        """Both ways until one side ends or the plan's place is reached."""
        sent = asked = 0
        while True:
            ready, _, _ = select.select([client, server], [], [], 120)
            if not ready:
                return
            if client in ready:
                piece = client.recv(PIECE)
                if plan.mode == "request" and asked + len(piece) > plan.after:
                    server.sendall(piece[:plan.after - asked])
                    self.cut(plan, client, server)
                    return
                if not piece:
                    return
                server.sendall(piece)
                asked += len(piece)
            if server in ready:
                piece = server.recv(PIECE)
                keep = self.place(plan, piece, sent)
                if keep is not None:
                    client.sendall(piece if plan.mode == "half_server" else piece[:keep])
                    self.cut(plan, client, server)
                    return
                if not piece:
                    return
                client.sendall(piece)
                sent += len(piece)

    def place(self, plan, piece, sent):
        """How much of this piece still passes; None: all of it, and what follows."""
        if not piece or plan.mode in (None, "request"):
            return None
        if plan.mode != "before_end":
            return plan.after - sent if sent + len(piece) > plan.after else None
        found = [at for at in (piece.find(mark) for mark in ENDS) if at >= 0]
        return min(found) + self.draw.randint(0, 6) if found else None

    def cut(self, plan, client, server):
        self.cuts[plan.mode] += 1
        if plan.mode == "stalled":
            time.sleep(plan.pause)
        if plan.mode in ("reset", "stalled", "answer", "request"):
            reset(client)
            reset(server)
        elif plan.mode == "half_server":
            server.shutdown(socket.SHUT_WR)  # as if we had no more to ask: what still comes is passed on
            server.settimeout(plan.pause)
            while piece := server.recv(PIECE):
                client.sendall(piece)
        elif plan.mode == "half_client":
            client.shutdown(socket.SHUT_WR)  # the client sees an end; the server goes on into nothing
            server.settimeout(plan.pause)
            while server.recv(PIECE):
                pass
