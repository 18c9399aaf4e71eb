"""Azure OpenAI writes the program. Without AZURE_OPENAI_ENDPOINT, a server in this process takes its place."""

import http.server
import json
import os
import threading

import mcp_client_helper  # finds the package in this repository
from code_execution_mcp import create_agent

PROGRAM = "from servers.calculator import multiply\nmultiply(6, 7)"


class Azure(http.server.BaseHTTPRequestHandler):
    """Responds to chat completions like a deployment."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path.startswith("/openai/deployments/my-chat/chat/completions?api-version="), self.path
        assert self.headers["api-key"] == "example-key" and "multiply" in json.dumps(request["messages"])
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "gpt-4o-mini", "choices": [
            {"index": 0, "delta": {"role": "assistant", "content": f"```python\n{PROGRAM}\n```"}, "finish_reason": "stop"}]}
        body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


options = {}
if not os.environ.get("AZURE_OPENAI_ENDPOINT"):
    azure = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Azure)
    threading.Thread(target=azure.serve_forever, daemon=True).start()
    options = {"llm_azure_endpoint": f"http://127.0.0.1:{azure.server_port}", "llm_api_key": "example-key",
               "llm_azure_deployment": "my-chat"}
agent = create_agent(llm_enabled=True, llm_provider="azure_openai", **options)
result, output, error = agent.execute_task("Multiply six by seven, please")
print(result, "· program by", result.record["result"]["generated_by"])
assert (result.value, error) == (42, None), (result, output, error)
assert result.record["result"]["generated_by"] == "llm", result.record
