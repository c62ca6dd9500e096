"""The served folder: index, pages, a run that goes on, and that nothing else of the machine is served."""

import base64
import hashlib
import http.client
import json
import os
import re
import threading
from contextlib import contextmanager
from html.parser import HTMLParser

import pytest

from reports import folder, record, serve


@contextmanager
def served(root):
    """Asks a server of `root`: a function of path and headers that gives status, headers and text."""
    running = serve.server(root, 0)
    threading.Thread(target=running.serve_forever, daemon=True).start()

    def ask(path, method="GET", **headers):
        connection = http.client.HTTPConnection(*running.server_address, timeout=30)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()

    try:
        yield ask
    finally:
        running.shutdown()
        running.server_close()


def test_the_index_has_counts_and_links_to_pages(results_file, trial, tmp_path):
    (tmp_path / "deep").mkdir()
    results_file([trial(), trial(world=3, verdict="FAIL", ratio=9.0)], "deep/a b.jsonl")
    with served(tmp_path) as ask:
        status, headers, text = ask("/")
        assert status == 200 and "http-equiv" not in text
        assert ('<a href="/page/deep/a%20b.jsonl">deep/a b.jsonl</a></th>'
                "<td class=n>1</td><td class=n>1</td><td class=n>0</td><td class=n>0</td><td>whole</td>") in text
        assert headers["Cache-Control"] == "no-store" and "default-src 'none'" in headers["Content-Security-Policy"]
        status, headers, page = ask("/page/deep/a%20b.jsonl")
        assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
        assert "1 failed of 2 trials" in page and "http-equiv=\"refresh" not in page and str(tmp_path) not in page
        assert ask("/", "HEAD")[2] == "" and ask("/", "POST")[0] == 501


def test_the_style_of_the_index_is_the_one_that_its_policy_allows(results_file, trial, tmp_path):
    results_file([trial()])
    with served(tmp_path) as ask:
        _, headers, text = ask("/")
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in headers["Content-Security-Policy"]
    assert "style=" not in text and "<script" not in text


def test_a_run_that_goes_on_is_followed_until_it_ends(results_file, trial, tmp_path):
    path = results_file([trial()], end=False, asked=4)
    with served(tmp_path) as ask:
        assert "cut: 1 of 4 trials" in ask("/")[2] and "refresh" not in ask("/page/run.jsonl")[2]
        with record.Writer(path, append=True) as writer:
            for text in (ask("/")[2], ask("/page/run.jsonl")[2]):
                assert "goes on: 1 of 4 trials (25 %)" in text
                assert re.search(r'<head>.*<meta http-equiv="refresh" content="\d+">', text, re.S)
            assert "<h1>– Goes on: 1 of 4 trials (25 %); 1 trial passed</h1>" in text and "the run goes on" in text
            assert "Cut" not in text and "was cut" not in text
            writer.trial(trial(world=3))
            assert "goes on: 2 of 4 trials (50 %)" in ask("/")[2]
            page = ask("/page/run.jsonl")[2]
            assert "packed/even-contiguous-w3-fp64" in page and "2 of 4 trials" in page
            writer.end({"counts": {}, "seconds": 1.0, "exit_code": 0})
            assert "refresh" not in ask("/")[2] + ask("/page/run.jsonl")[2]


def test_to_look_at_a_file_takes_no_lock_of_it(results_file, trial, tmp_path):
    path = results_file([trial()], end=False)
    results = folder.counted(path)
    with record.Writer(path, append=True):
        assert folder.running_of(path, results)
    assert not folder.running_of(path, results)


def test_where_locks_are_not_told_a_fresh_file_goes_on(results_file, trial, tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "LOCKS", tmp_path / "none")
    path = results_file([trial()], end=False)
    assert folder.running_of(path, folder.counted(path))
    os.utime(path, (0, 0))
    assert not folder.running_of(path, folder.counted(path))


def test_nothing_outside_the_folder_is_served(results_file, trial, tmp_path):
    secret = results_file([trial()], "secret.jsonl")
    root = tmp_path / "root"
    root.mkdir()
    (root / "notes.txt").write_text("mine")
    (root / ".hidden.jsonl").write_bytes(secret.read_bytes())
    (root / "link.jsonl").symlink_to(secret)
    (root / "up").symlink_to(tmp_path)
    paths = ["/page/../secret.jsonl", "/page/..%2fsecret.jsonl", "/page/%2e%2e/secret.jsonl", f"/page/{secret}",
             f"/page/{str(secret)[1:]}", "/page/link.jsonl", "/page/up/secret.jsonl", "/page/notes.txt", "/notes.txt",
             "/page/.hidden.jsonl", "/page/", "/page/%00", "//[", "/../secret.jsonl", "/page//etc/passwd"]
    with served(root) as ask:
        assert "No results file" in ask("/")[2]
        for path in paths:
            status, headers, text = ask(path)
            assert status in (404, 422) and "packed" not in text and "mine" not in text, path
            assert headers["Content-Type"].startswith("text/plain")


def test_a_foreign_name_for_this_machine_is_refused(results_file, trial, tmp_path):
    results_file([trial()])
    with served(tmp_path) as ask:
        assert ask("/", Host="evil.example")[0] == 403 and ask("/page/run.jsonl", Host="evil.example:80")[0] == 403


def test_damaged_and_hostile_files_are_told_and_end_nothing(results_file, trial, tmp_path):
    evil = "<script>alert(1)</script>.jsonl".replace("/", "_")
    (tmp_path / evil).write_text("[1]\n")
    (tmp_path / "empty.jsonl").write_text("")
    cut = results_file([trial(), trial(world=3)], "cut.jsonl")
    cut.write_bytes(cut.read_bytes()[:-90])
    header = results_file([trial()], "head.jsonl", time="<img src=x onerror=1>")
    assert json.loads(header.read_text().split("\n")[0])["time"].startswith("<img")
    with served(tmp_path) as ask:
        text = ask("/")[2]
        tags = set()
        parser = HTMLParser()
        parser.handle_starttag = lambda tag, attributes: tags.add(tag)
        parser.feed(text)
        assert not {"script", "img"} & tags and "&lt;script&gt;" in text and "not a ringcheck record" in text
        assert "holds no record" in text and "1 line could not be read" in text
        status, headers, told = ask("/page/empty.jsonl")
        assert status == 422 and told.count("\n") == 1 and headers["Content-Type"].startswith("text/plain")
        assert ask("/page/cut.jsonl")[0] == 200


def test_a_page_is_made_once_a_state(results_file, trial, tmp_path, monkeypatch):
    path, made = results_file([trial()]), []
    monkeypatch.setattr(folder.build, "page", lambda files: made.append(1) or "<head><body>x")
    with served(tmp_path) as ask:
        for _ in range(3):
            ask("/page/run.jsonl")
        assert len(made) == 1
        with record.Writer(path, append=True) as writer:
            writer.trial(trial(world=3))
        ask("/page/run.jsonl")
        assert len(made) == 2


@pytest.mark.parametrize(("arguments", "message"), [
    (["missing"], "missing is no folder"), (["GIVEN", "--port", "99999"], "port 99999 is none: 0 to 65535"),
    (["GIVEN", "--port", "TAKEN"], "cannot be served: Address already in use")])
def test_bad_input_is_one_line_and_code_2(tmp_path, capsys, arguments, message):
    other = serve.server(tmp_path, 0)
    words = {"GIVEN": str(tmp_path), "TAKEN": str(other.server_address[1])}
    assert serve.main([words.get(word, word) for word in arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert other.server_address[0] == "127.0.0.1"
    other.server_close()
