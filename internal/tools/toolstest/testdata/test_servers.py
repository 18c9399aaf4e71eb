import os, sqlite3, tempfile, unittest

WORKSPACE = tempfile.mkdtemp()
os.environ["CODEFLEET_WORKSPACE"] = WORKSPACE

from servers.database import execute, list_tables, query
from servers.filesystem import list_directory, read_file, write_file


class Filesystem(unittest.TestCase):
    def test_write_then_read(self):
        self.assertEqual(write_file("a/b.txt", "Hello World\r\né"), {"path": "a/b.txt", "bytes_written": 15, "success": True})
        self.assertEqual(read_file("a/b.txt"), "Hello World\r\né")
        self.assertEqual(read_file(os.path.join(WORKSPACE, "a/b.txt"), encoding="latin-1"), "Hello World\r\nÃ©")
        self.assertEqual(write_file("a/b.txt", "é", "latin-1")["bytes_written"], 1)

    def test_list(self):
        write_file("d/x.txt", "123")
        write_file("d/sub/y.txt", "")
        os.symlink("/etc", os.path.join(WORKSPACE, "d/link"))
        flat = [{"name": "link", "type": "other"}, {"name": "sub", "type": "directory"}, {"name": "x.txt", "type": "file", "size": 3}]
        self.assertEqual(list_directory("d"), {"path": "d", "items": flat, "recursive": False})
        deep = list_directory("d", recursive=True)["items"]
        self.assertEqual([i["name"] for i in deep], ["link", "sub", "sub/y.txt", "x.txt"])
        self.assertEqual(list_directory(".")["path"], ".")

    def test_rejected_paths(self):
        os.symlink("/etc", os.path.join(WORKSPACE, "out"))
        for path in ("/etc/passwd", "../../etc/x", "a/../../../x", "out/passwd", "/tmpx/y"):
            with self.assertRaises(PermissionError, msg=path):
                read_file(path)
            with self.assertRaises(PermissionError, msg=path):
                write_file(path, "")
        for call, error in (
            (lambda: read_file("nosuch"), FileNotFoundError),
            (lambda: list_directory("nosuch"), FileNotFoundError),
            (lambda: read_file("."), IsADirectoryError),
            (lambda: read_file(1), TypeError),
        ):
            with self.assertRaises(error):
                call()

    def test_failed_encoding_changes_nothing(self):
        write_file("e", "before")
        for text, encoding in (("\udcff", None), ("€", "latin-1")):
            with self.assertRaises(UnicodeEncodeError):
                write_file("e", text, encoding)
        self.assertEqual(read_file("e"), "before")


class Database(unittest.TestCase):
    def setUp(self):
        path = os.path.join(WORKSPACE, "database.sqlite")
        if os.path.exists(path):
            os.remove(path)

    def test_reading_creates_no_database(self):
        self.assertEqual(list_tables(), [])
        with self.assertRaisesRegex(sqlite3.OperationalError, "no such table: users; the database has no tables"):
            query("SELECT * FROM users")
        self.assertFalse(os.path.exists(os.path.join(WORKSPACE, "database.sqlite")))

    def test_rows(self):
        self.assertEqual(execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, active INT)"), {"rows_affected": 0, "last_insert_id": None})
        self.assertEqual(execute("INSERT INTO users (name, active) VALUES (?, ?)", ["Alice", 1]), {"rows_affected": 1, "last_insert_id": 1})
        self.assertEqual(execute("INSERT INTO users (name, active) VALUES (:n, :a)", {"n": "Bob", "a": 0})["last_insert_id"], 2)
        self.assertEqual(query("SELECT name FROM users WHERE active = ?", [1]), [{"name": "Alice"}])
        self.assertEqual(execute("UPDATE users SET active = 1"), {"rows_affected": 2, "last_insert_id": None})
        self.assertEqual(execute("DELETE FROM users WHERE name = ?", ["Bob"])["rows_affected"], 1)
        self.assertEqual(query("SELECT count(*) AS n FROM users"), [{"n": 1}])
        self.assertEqual(list_tables(), ["users"])
        with self.assertRaisesRegex(sqlite3.OperationalError, "no such table: user; tables: users"):
            query("SELECT * FROM user")

    def test_query_cannot_write(self):
        execute("CREATE TABLE t (a)")
        with self.assertRaisesRegex(sqlite3.OperationalError, "query only reads"):
            query("INSERT INTO t VALUES (1)")
        with self.assertRaises(sqlite3.Error):
            execute("INSERT INTO t VALUES (1); DROP TABLE t")
        self.assertEqual(query("SELECT * FROM t"), [])


unittest.main()
