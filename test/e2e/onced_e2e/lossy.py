"""A proxy between a client and onced that can lose the answer to a tool call: the request gets through, onced answers in full,
the client's connection is reset before a byte of the answer reaches it."""

import select
import socket
import struct
import threading
import time


class Lossy:
    def __init__(self, port):
        self.target = port
        self.lose = 0  # answers to tools/call still to be lost
        self.lost = 0
        self.calls = 0  # tools/call requests seen
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.closing = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.closing = True
        self.listener.close()

    def _accept(self):
        while not self.closing:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _doomed(self, piece):
        """Whether the answer to what is in this piece is to be lost."""
        count = piece.count(b'"tools/call"')
        if not count:
            return False
        with self.lock:
            self.calls += count
            if self.lose == 0:
                return False
            self.lose -= 1
            self.lost += 1
            return True

    def _carry(self, client):
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            client.close()
            return
        doomed = False
        while True:
            readable, _, _ = select.select([client, server], [], [], 60)
            try:
                for end in readable:
                    piece = end.recv(65536)
                    if not piece:
                        raise ConnectionError
                    if end is client:
                        doomed |= self._doomed(piece)
                        server.sendall(piece)
                    elif doomed:
                        self._swallow(server)
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        raise ConnectionError
                    else:
                        client.sendall(piece)
            except OSError:
                client.close()
                server.close()
                return

    @staticmethod
    def _swallow(server):
        """The rest of the answer: onced has written it in full before the connection ends."""
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            readable, _, _ = select.select([server], [], [], 0.05)
            if not readable or not server.recv(65536):
                return
