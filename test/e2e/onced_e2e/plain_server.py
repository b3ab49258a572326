"""An MCP server over stdio, standard library only: python3 plain_server.py LIST FOLDER

LIST is a JSON file with what tools/list answers; it is read anew for each list. Methods: write {path, text} appends a line to
FOLDER/path, read {path} gives its text, change {tools} replaces LIST and tells list_changed, hang never answers, other tools do
nothing."""

import json
import pathlib
import sys
import time


def main():
    listed, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    if not listed.exists():
        sys.exit("there is no list of tools")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        answer = handle(message, listed, folder)
        answer.setdefault("jsonrpc", "2.0")
        answer["id"] = message["id"]
        print(json.dumps(answer), flush=True)
        if message["method"] == "tools/call" and message["params"]["name"] == "change":
            print(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}), flush=True)


def handle(message, listed, folder):
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        return {"result": {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {"listChanged": True}},
                           "serverInfo": {"name": "plain", "version": "3"}}}
    if method == "tools/list":
        return {"result": {"tools": json.loads(listed.read_text())}}
    if method == "tools/call":
        return {"result": call(params["name"], params.get("arguments") or {}, listed, folder)}
    return {"error": {"code": -32601, "message": f"no method {method}"}}


def call(name, arguments, listed, folder):
    if name == "write":
        with open(folder / arguments["path"], "a") as file:
            file.write(arguments["text"] + "\n")
    elif name == "read":
        try:
            return text((folder / arguments["path"]).read_text())
        except OSError as error:
            return {**text(str(error)), "isError": True}
    elif name == "hang":
        (folder / "hanging").touch()
        time.sleep(3600)
    elif name == "change":
        listed.write_text(json.dumps(arguments["tools"]))
    return text("done")


def text(value):
    return {"content": [{"type": "text", "text": value}]}


if __name__ == "__main__":
    main()
