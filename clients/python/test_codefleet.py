"""Tests of the Python client. python_test.go starts the fleet that CODEFLEET_URL names, and runs these tests. The
fleet's fake worker prints task descriptions, and understands the programs "print …", "fail …", "die", "files" and "block"."""

import contextlib
import http.server
import io
import json
import os
import socket
import tempfile
import threading
import unittest
import unittest.mock

import codefleet
from codefleet import ExecutionResult, FleetError, create_agent, execute_task


class Tasks(unittest.TestCase):
    def test_execute_task(self):
        result, output, error = execute_task("Calculate 5 + 3")
        self.assertEqual((result, output, error), (ExecutionResult.SUCCESS, "Calculate 5 + 3\n", None))
        self.assertEqual((str(result), str(result.status), result.value), ("Calculate 5 + 3", "success", None))

    def test_result(self):
        for value, output, text in ((8, "5 + 3 = 8\n", "8"), ("a", "b", "a"), ({"é": [1.5]}, "", '{"é": [1.5]}'), (0, "x", "0"),
                                    (None, "printed\n", "printed"), (None, "", "success")):
            self.assertEqual(str(codefleet.Result(ExecutionResult.SUCCESS, value, output)), text)
        self.assertEqual(codefleet.Result(ExecutionResult.TIMEOUT), ExecutionResult.TIMEOUT)
        self.assertNotEqual(codefleet.Result(ExecutionResult.SUCCESS, 8), codefleet.Result(ExecutionResult.SUCCESS, 9))

    def test_agent_is_reusable(self):
        agent = create_agent(session="monday", workspace="lab", priority="low", labels={"a": "b"}, limits={"timeout_s": 5})
        for text in ("one", "two €"):
            self.assertEqual(agent.execute_task(text), (ExecutionResult.SUCCESS, text + "\n", None))
            self.assertEqual((agent.last_record["session"], agent.last_record["workspace"], agent.last_record["priority"]), ("monday", "lab", "low"))

    def test_failure(self):
        agent = create_agent()
        self.assertEqual(agent.execute_code("fail 7"), (ExecutionResult.FAILURE, "", "ValueError: 7"))
        self.assertEqual(agent.last_record["result"]["error"]["line"], 1)

    def test_timeout(self):
        agent = create_agent(timeout=0.3)
        result, output, error = agent.execute_code("block")
        self.assertEqual((result, output), (ExecutionResult.TIMEOUT, ""))
        task_id = error.rsplit(" ", 1)[1]
        agent.cancel(task_id)
        self.assertEqual(agent.wait(task_id, 20)["status"], "cancelled")

    def test_refusal_names_the_path(self):
        result, _, error = create_agent(limits={"memory_mb": "much"}).execute_task("x")
        self.assertEqual(result, ExecutionResult.FAILURE)
        self.assertTrue(error.startswith("/limits/memory_mb: "), error)
        self.assertEqual(error.count("/limits/memory_mb"), 1, error)

    def test_wrong_token(self):
        result, _, error = execute_task("x", token="nonsense")
        self.assertEqual(result, ExecutionResult.FAILURE)
        self.assertIn("token", error)

    def test_idempotency_key(self):
        agent = create_agent()
        ids = {agent.submit({"code": "print 1"}, idempotency_key="k")["task_id"] for _ in range(2)}
        self.assertEqual(len(ids), 1)

    def test_redrive(self):
        agent = create_agent()
        self.assertEqual(agent.redrive_all(), [])
        agent.execute_code("die")
        task_id = agent.last_record["task_id"]
        self.assertEqual(agent.last_record["status"], "dead")
        record = agent.redrive(task_id)
        self.assertEqual((record["task_id"], record["status"]), (task_id, "queued"))
        self.assertEqual(agent.wait(task_id, 20)["status"], "dead")
        self.assertEqual([(t["task_id"], t["status"]) for t in agent.redrive_all()], [(task_id, "queued")])
        agent.wait(task_id, 20)
        agent.execute_code("print 1")
        with self.assertRaises(FleetError) as caught:
            agent.redrive(agent.last_record["task_id"])
        self.assertEqual((caught.exception.status, caught.exception.code), (409, "not_redrivable"))

    def test_verbose(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            create_agent().execute_code("print 42", verbose=True)
        self.assertEqual(out.getvalue(), "   1 | print 42\nStatus: success\nOutput:\n42\n")
        agent, out = create_agent(), io.StringIO()
        agent.execute_code("print 42")
        with contextlib.redirect_stdout(out):
            agent.execute_code("\udcff", verbose=True)
        self.assertRegex(out.getvalue(), "^Status: failure\nError: the request cannot be encoded")

    def test_required_tools(self):
        agent = create_agent()
        self.assertIsNone(agent.execute_task("x", required_tools={"calculator": ["add", "multiply"]})[2])

    def test_unknown_task(self):
        with self.assertRaises(FleetError) as caught:
            create_agent().get("aaaaaaaaaaaaaaaaaaaaaaaaaa")
        self.assertEqual((caught.exception.status, caught.exception.code), (404, "unknown_task"))


class Automations(unittest.TestCase):
    def test_schedules(self):
        agent = create_agent(workspace="reports")
        added = agent.add_schedule("report", "0 9 * * 1-5", {"code": "print 1"}, zone="Europe/Berlin", missed="skip")
        self.assertEqual((added["task"], added["missed"]), ({"code": "print 1", "workspace": "reports"}, "skip"))
        self.assertEqual(agent.add_schedule("report", "0 9 * * 1-5", {"code": "print 1"}, zone="Europe/Berlin", missed="skip")["created_at"],
                         added["created_at"])
        with self.assertRaises(FleetError) as caught:
            agent.add_schedule("report", "@hourly", {"code": "print 1"})
        self.assertEqual(caught.exception.code, "automation_exists")
        self.assertEqual([agent.pause_schedule("report")["paused"], agent.resume_schedule("report")["paused"]], [True, False])
        task = agent.wait(agent.run_schedule("report")["task_id"], 20)
        self.assertEqual((task["status"], task["workspace"]), ("succeeded", "reports"))
        self.assertEqual([s["name"] for s in agent.schedules()], ["report"])
        agent.remove_schedule("report")
        self.assertEqual(agent.schedules(), [])

    def test_triggers(self):
        agent = create_agent()
        agent.add_trigger("order", "order.created", {"code": "print 2"}, filter="data.total > 100")
        event = {"specversion": "1.0", "id": "ä1", "source": "/shop", "type": "order.created", "data": {"total": 50}}
        self.assertEqual(agent.test_trigger("order", event)["matches"], False)
        event["data"]["total"] = 150
        tested = agent.test_trigger("order", event)
        self.assertEqual((tested["matches"], tested["task"]["inputs"]), (True, {"total": 150}))
        self.assertEqual(agent.send_event(event)["id"], "ä1")
        self.assertEqual([t["filter"] for t in agent.triggers()], ["data.total > 100"])
        agent.remove_trigger("order")
        self.assertEqual(agent.triggers(), [])

    def test_webhooks(self):
        agent = create_agent()
        added = agent.add_webhook("results", "https://hooks.example.org/x", no_handshake=True)
        self.assertTrue(added["secret"].startswith("whsec_"))
        self.assertEqual([(w["url"], w.get("secret")) for w in agent.webhooks()], [("https://hooks.example.org/x", None)])
        agent.remove_webhook("results")
        with self.assertRaises(FleetError) as caught:
            agent.remove_webhook("results")
        self.assertEqual((caught.exception.status, caught.exception.code), (404, "unknown_automation"))


class Workflows(unittest.TestCase):
    form = {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}, "n": {"type": "integer", "maximum": 9}}}
    workflow = {
        "name": "asks", "inputs": {"n": {"type": "integer"}},
        "steps": [{"id": "ask", "ask": {"message": "Is ${ inputs.n } right?", "form": form}},
                  {"id": "tell", "when": "steps.ask.result.ok", "emit": {"type": "told"}}],
        "outputs": {"n": {"value": "${ inputs.n }"}, "tell": {"value": "${ steps.tell.status }"}},
    }

    def test_run_answer_rerun(self):
        agent = create_agent(workspace="lab")
        run = agent.run_workflow(self.workflow, {"n": 6}, idempotency_key="python")
        self.assertEqual(agent.run_workflow(self.workflow, {"n": 7}, idempotency_key="python")["run_id"], run["run_id"])
        run = agent.wait_workflow(run["run_id"], 10)
        self.assertEqual((run["status"], run["workspace"], run["steps"][0]["message"]), ("waiting", "lab", "Is 6 right?"))
        with self.assertRaises(FleetError) as caught:
            agent.answer_workflow(run["run_id"], "ask", {"ok": "yes"})
        self.assertEqual((caught.exception.code, caught.exception.path), ("bad_answer", "/values/ok"))
        self.assertIn(run["run_id"], [r["run_id"] for r in agent.workflow_runs(asking=True)])
        agent.answer_workflow(run["run_id"], "ask", {"ok": True})
        run = agent.wait_workflow(run["run_id"], 10)
        self.assertEqual((run["status"], run["outputs"]), ("succeeded", {"n": 6, "tell": "succeeded"}))
        with self.assertRaises(FleetError) as caught:
            agent.answer_workflow(run["run_id"], "ask", {"ok": False})
        self.assertEqual(caught.exception.code, "not_waiting")
        again = agent.rerun_workflow(run["run_id"], "tell", {"n": 8})
        again = agent.wait_workflow(again["run_id"], 10)
        self.assertEqual((again["outputs"]["n"], again["rerun_of"], again["steps"][0]["kept"]), (8, run["run_id"], True))
        self.assertIn(run["run_id"], [r["run_id"] for r in agent.workflow_runs(limit=50)])
        self.assertNotIn(run["run_id"], [r["run_id"] for r in agent.workflow_runs(asking=True)])

    def test_cancel(self):
        agent = create_agent()
        run = agent.run_workflow(self.workflow, {"n": 1})
        with self.assertRaises(FleetError) as caught:
            agent.rerun_workflow(run["run_id"], "ask")
        self.assertEqual(caught.exception.code, "run_active")
        self.assertEqual(agent.cancel_workflow(run["run_id"])["status"], "cancelled")
        self.assertEqual(agent.workflow_run(run["run_id"])["status"], "cancelled")

    def test_refusals(self):
        agent = create_agent()
        for workflow, inputs, code, path in (
            ({"name": "w", "steps": []}, {}, "bad_workflow", "/workflow/steps"),
            ({"name": "w", "steps": [{"id": "a", "code": "1", "needs": ["b"]}]}, {}, "bad_workflow", "/workflow/steps/0/needs/0"),
            (self.workflow, {}, "bad_workflow", "/inputs/n"),
            (self.workflow, {"n": "many"}, "bad_workflow", "/inputs/n"),
        ):
            with self.assertRaises(FleetError) as caught:
                agent.run_workflow(workflow, inputs)
            self.assertEqual((caught.exception.code, caught.exception.path), (code, path))
        with self.assertRaises(FleetError) as caught:
            agent.workflow_run("a2wntt52fwmbq3ezlg6zelfsfu")
        self.assertEqual(caught.exception.code, "unknown_run")

    def test_forms(self):
        agent = create_agent()
        filled = agent.fill_form(self.form, "n: 7")
        self.assertEqual((filled["values"], filled["sources"]["n"]["by"]), ({"n": 7}, "rules"))
        self.assertEqual([p["field"] for p in filled["problems"]], ["ok"])
        self.assertEqual(agent.fill_form(self.form, "n: 7", {"ok": True})["problems"], [])
        self.assertEqual([p["field"] for p in agent.check_form(self.form, {"ok": 1, "n": 10})], ["ok", "n"])
        self.assertEqual(agent.check_form(self.form, {"ok": True}), [])
        with self.assertRaises(FleetError) as caught:
            agent.check_form({"type": "object"}, {})
        self.assertEqual(caught.exception.path, "/form")


class Files(unittest.TestCase):
    def test_write_list_read_delete(self):
        agent = create_agent(workspace="files")
        commit = agent.write_file("data/ä b?.csv", "1,€\n")
        self.assertEqual((commit["generation"], commit["changed"]), (1, ["data", "data/ä b?.csv"]))
        self.assertEqual(agent.write_file("raw", b"\x00\xff")["generation"], 2)
        self.assertEqual(agent.read_file("data/ä b?.csv"), "1,€\n".encode())
        self.assertEqual(agent.read_file("raw"), b"\x00\xff")
        self.assertEqual([(f["path"], f["bytes"]) for f in agent.list_files("data") if f["kind"] == "file"], [("data/ä b?.csv", 6)])
        self.assertEqual(create_agent(workspace="other").list_files(), [])
        agent.delete_file("data")
        self.assertEqual([f["path"] for f in agent.list_files()], ["raw"])

    def test_unknown_file(self):
        with self.assertRaises(FleetError) as caught:
            create_agent().read_file("nothing")
        self.assertEqual((caught.exception.status, caught.exception.code), (404, "unknown_file"))

    def test_invalid_paths(self):
        agent = create_agent()
        for path in ("../x", "a/../../x", ".", "", "/x", "a//x", "a/"):
            with self.assertRaises(FleetError) as caught:
                agent.write_file(path, "x")
            self.assertEqual((path, caught.exception.code), (path, "bad_path"))
        with self.assertRaises(FleetError) as caught:
            create_agent(workspace="main/files").list_files()
        self.assertEqual((caught.exception.status, caught.exception.code), (400, "bad_name"))

    def test_content_types(self):
        agent = create_agent(workspace="content")
        for content in (5, None, [65], {"a": 1}):
            with self.assertRaises(TypeError):
                agent.write_file("n", content)
        agent.write_file("n", bytearray(b"x"))
        self.assertEqual([(f["path"], f["bytes"]) for f in agent.list_files()], [("n", 1)])

    def test_lone_surrogates(self):
        agent = create_agent(workspace="surrogates")
        for name, call in (
            ("the content", lambda: agent.write_file("n", "ab\udcff")),
            ("the path", lambda: agent.write_file("b\udcff", "x")),
            ("the path", lambda: agent.read_file("b\udcff")),
            ("the path", lambda: agent.list_files("b\udcff")),
            ("the request", lambda: agent.save_state({"n": "\ud800"})),
        ):
            with self.assertRaises(FleetError) as caught:
                call()
            self.assertEqual((caught.exception.status, caught.exception.code), (400, "bad_text"))
            self.assertRegex(str(caught.exception), name + r" cannot be encoded: .* '\\ud(cff|800)', at character \d+ \(.*bytes")
        result, output, error = agent.execute_code("print('\udcff')")
        self.assertEqual((result, output), (ExecutionResult.FAILURE, ""))
        self.assertIn("'\\udcff', at character", error)
        agent.write_file("n", "ab\udcff".encode(errors="surrogateescape"))
        self.assertEqual(agent.read_file("n"), b"ab\xff")
        agent.write_file("n", "\U0001f600")
        self.assertEqual(agent.read_file("n"), b"\xf0\x9f\x98\x80")

    def test_artifact(self):
        agent = create_agent()
        agent.execute_code("files")
        self.assertEqual(agent.artifact(agent.last_record["task_id"], "out/a.csv"), b"1,2\n")

    def test_skills(self):
        agent = create_agent()
        saved = agent.save_skill("double_number", "def run(x):\n    return 2 * x\n", "Doubles a number.", inputs={"x": 4})
        self.assertEqual((saved["version"], saved["signature"], saved["smoke"]["called"]), (1, "run(x)", True))
        self.assertEqual([k["name"] for k in agent.skills()], ["double-number"])
        self.assertIsNone(agent.run_skill("double-number", {"x": 21})[2])
        self.assertIn("2 * x", agent.skill("double_number", 1)["code"])
        self.assertEqual(len(agent.skill_versions("double-number")), 1)
        with self.assertRaises(FleetError) as caught:
            agent.save_skill("double-number", "fail on purpose", "Fails.", base=1)
        self.assertEqual(caught.exception.code, "skill_failed")
        with self.assertRaises(FleetError) as caught:
            agent.save_skill("double-number", "def run(): pass", "Taken.")
        self.assertEqual(caught.exception.code, "skill_conflict")
        agent.delete_skill("double-number")
        self.assertEqual(agent.skills(), [])

    def test_sessions(self):
        agent = create_agent(session="session_001", workspace="customer_A")
        for call in (agent.session, agent.resume_session, lambda: agent.save_checkpoint({"step": 1})):
            with self.assertRaises(FleetError) as caught:
                call()
            self.assertEqual((caught.exception.status, caught.exception.code), (404, "unknown_session"))
        for n in range(3):
            agent.execute_code(f"print {n}")
        log = agent.save_checkpoint({"step": 3, "context": "half"})
        self.assertEqual(([t["output"] for t in log["tasks"]], log["checkpoint"]["step"]), (["0\n", "1\n", "2\n"], 3))
        agent.save_checkpoint({"step": 4})
        self.assertEqual([t["code"] for t in agent.session(limit=2)["tasks"]], ["print 1", "print 2"])
        self.assertIn("session_001", [s["session_id"] for s in agent.sessions()])

        other = create_agent()  # continues from the earlier checkpoint, as another process would
        resumed = other.resume_session("session_001", checkpoint=log["checkpoint"]["id"])
        self.assertEqual((resumed["checkpoint"]["step"], resumed["workspace"]), (3, "customer_A"))
        other.execute_code("print 4")
        self.assertEqual((other.last_record["session"], other.last_record["workspace"]), ("session_001", "customer_A"))
        self.assertEqual(len(agent.session()["tasks"]), 4)
        for call, code in ((lambda: create_agent().session(), "bad_name"), (lambda: agent.session("../x"), "bad_path"),
                           (lambda: agent.session("-x"), "bad_name"), (lambda: agent.save_checkpoint([1]), "bad_data"),
                           (lambda: agent.resume_session(checkpoint=1), "unknown_checkpoint")):
            with self.assertRaises(FleetError) as caught:
                call()
            self.assertEqual(caught.exception.code, code)

    def test_state(self):
        agent = create_agent(workspace="state")
        self.assertIsNone(agent.get_state())
        agent.save_state({"n": 1, "€": ["x"]})
        self.assertEqual(agent.get_state(), {"n": 1, "€": ["x"]})
        agent.save_state({"deep": {"er": True}}, "state/other.yaml")
        self.assertEqual(agent.get_state("state/other.yaml"), {"deep": {"er": True}})
        self.assertIsNone(create_agent(workspace="other").get_state())


class Options(unittest.TestCase):
    def test_settings_of_a_running_fleet_are_refused(self):
        with self.assertRaises(FleetError) as caught:
            create_agent(url="http://127.0.0.1:1", workspace_dir="./w", llm_enabled=True, llm_api_key="secret", state_file="s.json")
        self.assertEqual((caught.exception.code, caught.exception.status), ("fleet_setting", 400))
        self.assertTrue(str(caught.exception).startswith("execution.state.state_file, execution.workspace_dir, llm.api_key, llm.enabled: "))
        self.assertNotIn("secret", str(caught.exception))

    def test_settings_need_the_program(self):
        with unittest.mock.patch.dict(os.environ, {"CODEFLEET_BIN": "", "PATH": ""}):
            result, _, error = execute_task("x", llm_enabled=True)
        self.assertEqual(result, ExecutionResult.FAILURE)
        self.assertRegex(error, r"the binary codefleet, .* cannot be run .*\(make build, .*CODEFLEET_BIN")

    def test_settings_need_the_package(self):
        with unittest.mock.patch.dict("sys.modules", {"code_execution_mcp": None}):
            with self.assertRaisesRegex(FleetError, "llm_model: .*pip install"):
                create_agent(llm_model="m")

    def test_network_is_requested_for_each_task(self):
        agent = create_agent(url="http://127.0.0.1:1", allow_network_access=True)
        self.assertEqual(agent._defaults["network"], {"allow": ["*"]})
        self.assertIsNone(create_agent(url="http://127.0.0.1:1", allow_network_access=False)._defaults["network"])

    def test_arguments_for_programs_are_refused(self):
        with self.assertRaisesRegex(FleetError, "context, header_comment: the fleet writes the program .*execute_code"):
            create_agent(url="http://127.0.0.1:1").execute_task("x", context={}, header_comment="#")

    def test_no_fleet(self):
        with tempfile.TemporaryDirectory() as directory, unittest.mock.patch.dict(
                os.environ, {"CODEFLEET_FLEET": "", "CODEFLEET_URL": "", "CODEFLEET_DATA": directory}):
            self.assertEqual(execute_task("x"), (ExecutionResult.FAILURE, "",
                                                 "no fleet found (start one with `codefleet up`, or set CODEFLEET_URL)"))

    def test_unknown_option(self):
        with self.assertRaises(TypeError):
            create_agent(url="http://127.0.0.1:1", sesion="typo")


class Responses(http.server.BaseHTTPRequestHandler):
    """Responds to each request with the next (status, headers, body) of the server's list."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.server.paths.append(self.path)
        self.server.keys.append(self.headers["Idempotency-Key"])
        status, headers, body = self.server.responses.pop(0)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_DELETE = do_POST

    def log_message(self, *args):
        pass


class Failures(unittest.TestCase):
    def respond(self, *responses):
        server = http.server.HTTPServer(("127.0.0.1", 0), Responses)
        server.responses, server.keys, server.paths = list(responses), [], []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        return server, create_agent(url=f"http://127.0.0.1:{server.server_port}", token="t")

    def test_busy_fleet_is_retried(self):
        done = json.dumps({"task_id": "x", "status": "succeeded", "result": {"output": "42\n"}}).encode()
        server, agent = self.respond((503, {}, b"{}"), (429, {"Retry-After": "3"}, b'{"code":"backlog_full","message":"m"}'), (200, {}, done))
        with unittest.mock.patch("time.sleep") as sleep:
            self.assertEqual(agent.execute_task("x"), (ExecutionResult.SUCCESS, "42\n", None))
        self.assertEqual([call.args[0] for call in sleep.call_args_list], [0.1, 3])
        self.assertEqual(len(server.keys), 3)
        self.assertEqual(len(set(server.keys)), 1)

    def test_redrive_is_not_repeated(self):
        server, agent = self.respond((503, {}, b'{"code":"unavailable","message":"m"}'))
        with self.assertRaises(FleetError) as caught:
            agent.redrive_all()
        self.assertEqual((caught.exception.code, server.responses), ("unavailable", []))

    def test_changes_are_not_repeated(self):
        for change in (lambda a: a.write_file("f", "x"), lambda a: a.delete_file("f"), lambda a: a.delete_skill("s")):
            server, agent = self.respond((503, {}, b'{"code":"unavailable","message":"m"}'))
            with self.assertRaises(FleetError) as caught:
                change(agent)
            self.assertEqual((caught.exception.code, server.responses), ("unavailable", []))

    def test_redrive_all_reads_all_pages(self):
        pages = [{"tasks": [{"task_id": "a", "status": "queued"}], "next": 7}, {"tasks": [{"task_id": "b", "error": "gone"}]}]
        server, agent = self.respond(*((200, {}, json.dumps(page).encode()) for page in pages))
        self.assertEqual([t["task_id"] for t in agent.redrive_all()], ["a", "b"])
        self.assertEqual(server.paths, ["/v1/dead/redrive?seq=0", "/v1/dead/redrive?seq=7"])

    def test_wrong_scheme(self):
        refusal = b"Client sent an HTTP request to an HTTPS server.\n"
        _, agent = self.respond((400, {}, refusal))
        result, _, error = agent.execute_task("x")
        self.assertEqual((result, error), (ExecutionResult.FAILURE, f"the server speaks HTTPS, not HTTP (use the address https{agent._url[4:]})"))
        server, agent = self.respond()
        server.handle_error = lambda *args: None
        encrypted = create_agent(url="https" + agent._url[4:])
        result, _, error = encrypted.execute_task("x")
        self.assertEqual((result, error), (ExecutionResult.FAILURE, f"the server speaks HTTP, not HTTPS (use the address {agent._url})"))

    def test_no_http(self):
        queue = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(queue.close)

        def serve():
            connection, _ = queue.accept()
            with connection:
                connection.sendall(b'INFO {"server_id":"NA"}\r\n')
                connection.recv(1 << 16)

        threading.Thread(target=serve, daemon=True).start()
        result, _, error = create_agent(url=f"http://127.0.0.1:{queue.getsockname()[1]}").execute_task("x")
        self.assertEqual((result, error), (ExecutionResult.FAILURE, "the server does not speak HTTP (check the address of the fleet)"))

    def test_no_json(self):
        for content in (b"<html>", b"[" * 100_000):
            server, agent = self.respond((200, {}, content))
            with self.assertRaises(FleetError) as caught:
                agent.submit({"code": "1"})
            self.assertEqual((caught.exception.status, caught.exception.code), (200, "unexpected_response"))
            self.assertEqual(str(caught.exception), "the response is not JSON, so it is not from a fleet (check the address of the fleet)")
            self.assertEqual(len(server.paths), 1)

    def test_no_registration(self):
        class Silent(io.BytesIO):
            status = 200

            def __next__(self):
                raise TimeoutError("timed out")

        class Stream(io.BytesIO):
            status = 200

        agent = create_agent(url="http://127.0.0.1:1")
        for stream, code in ((Silent(), "unreachable"), (Stream(), "unexpected_response"), (Stream(b"<html>\n"), "unexpected_response"),
                             (Stream(b"data: x\n"), "unexpected_response"), (Stream(b"data: {}\n"), "unexpected_response"),
                             (Stream(b"data: 1\n"), "unexpected_response")):
            with unittest.mock.patch.object(agent, "_open", return_value=stream), self.assertRaises(FleetError) as caught:
                agent.register_tools([lambda: 1], names=["one"])
            self.assertEqual((caught.exception.code, stream.closed), (code, True))

    def test_registration_closed_while_it_connects(self):
        """The tools of a registration that is closed while it connects again do not stay registered."""
        agent, registered, streams = create_agent(url="http://127.0.0.1:1"), threading.Event(), []
        earlier = threading.enumerate()

        def connect(request, timeout):
            if streams:
                registered.wait()
                registration.close()
            streams.append(io.BytesIO(b'data: {"id":"r"}\n'))
            return streams[-1]

        with unittest.mock.patch.object(agent, "_open", connect):
            registration = agent.register_tools([lambda: 1], names=["one"])
            serve = next(t for t in threading.enumerate() if t.name == "codefleet-tools" and t not in earlier)
            registered.set()
            serve.join(10)
        self.assertEqual([stream.closed for stream in streams], [True, True])

    def test_redirect_is_not_followed(self):
        _, agent = self.respond((307, {"Location": "http://127.0.0.1:9/"}, b""))
        self.assertEqual(agent.execute_task("x"), (ExecutionResult.FAILURE, "", "the response is 307, which is not from a fleet (check the address of the fleet)"))

    def test_unreachable_fleet(self):
        agent = create_agent(url="http://127.0.0.1:1")
        with unittest.mock.patch.object(codefleet, "_RETRY_FOR", 0.01):
            result, _, error = agent.execute_task("x")
        self.assertEqual(result, ExecutionResult.FAILURE)
        self.assertEqual(error, "fleet at http://127.0.0.1:1 cannot be reached: [Errno 111] Connection refused (it does not run: start it "
                         "with `codefleet up`, or set CODEFLEET_URL and CODEFLEET_TOKEN to another fleet)")

    def test_invalid_address(self):
        for url in ("nonsense", "127.0.0.1:8787", "nats://127.0.0.1:4222", "http://", "http://[::1", "file:///etc/passwd",
                    "http://127.0.0.1:abc", "http://127.0.0.1:0", "http://127.0.0.1:99999"):
            with self.assertRaisesRegex(FleetError, "want http:// or https:// and a host"):
                create_agent(url=url)
        for url in ("ann:s3cret@127.0.0.1:1", "http://[s3cret@127.0.0.1:1", "nats://ann:s3@cret@127.0.0.1:1",
                    "http://ann:s3cret@127.0.0.1:1", "http://s3cret@127.0.0.1:1"):
            with self.assertRaisesRegex(FleetError, "fleet address '…@127.0.0.1:1': want http://"):
                create_agent(url=url)

    def test_token(self):
        self.assertEqual(create_agent(url="http://127.0.0.1:1", token="a\r\n")._token, "a")
        with self.assertRaisesRegex(FleetError, "token of the fleet contains a newline"):
            create_agent(url="http://127.0.0.1:1", token="a\nb")


class Locate(unittest.TestCase):
    def test_order(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "fleet.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump({"url": "http://127.0.0.1:2", "token": "a"}, f)
            with unittest.mock.patch.dict(os.environ, {"CODEFLEET_FLEET": "", "CODEFLEET_URL": "", "CODEFLEET_DATA": directory}):
                self.assertEqual(codefleet._locate(None), ("http://127.0.0.1:2", "a"))
                os.environ["CODEFLEET_URL"], os.environ["CODEFLEET_TOKEN"] = "http://127.0.0.1:3", "b"
                self.assertEqual(codefleet._locate(None), ("http://127.0.0.1:3", "b"))
                self.assertEqual(codefleet._locate(path), ("http://127.0.0.1:2", "a"))
                os.remove(path)
                os.environ["CODEFLEET_URL"] = ""
                with self.assertRaisesRegex(FleetError, "codefleet up"):
                    create_agent()

    def test_relative_data_home_is_ignored(self):
        with tempfile.TemporaryDirectory() as directory:
            os.makedirs(os.path.join(directory, ".local/share/codefleet"))
            with open(os.path.join(directory, ".local/share/codefleet/fleet.json"), "w", encoding="utf-8") as f:
                json.dump({"url": "http://127.0.0.1:4"}, f)
            with unittest.mock.patch.dict(os.environ, {
                "CODEFLEET_FLEET": "", "CODEFLEET_URL": "", "CODEFLEET_DATA": "", "XDG_DATA_HOME": ".", "HOME": directory,
            }):
                self.assertEqual(codefleet._locate(None), ("http://127.0.0.1:4", None))


if __name__ == "__main__":
    unittest.main()
