"""The header that tells the program its commit: launch/write_commit.cmake, as each build runs it.

    write_commit_test.py CMAKE GIT
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CMAKE, GIT = sys.argv[1:3]
SCRIPT = pathlib.Path(__file__).parents[2] / "launch/write_commit.cmake"


class WriteCommit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.source = self.folder / "source"
        self.source.mkdir()
        (self.source / "file").write_text("one")
        self.header = self.folder / "commit.hpp"

    def git(self, *words):
        env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run([GIT, "-c", "user.name=a", "-c", "user.email=a@example.org", *words], cwd=self.source,
                              env=env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, git=GIT):
        """What stands in the header after a build."""
        done = subprocess.run([CMAKE, "-D", f"GIT={git}", "-D", f"SOURCE={self.source}", "-D", f"FILE={self.header}",
                               "-P", SCRIPT], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return self.header.read_text().split('"')[1]

    def begin(self):
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "one")
        return self.git("rev-parse", "--short=12", "HEAD")

    def test_it_follows_the_sources(self):
        first = self.begin()
        self.assertRegex(first, "^[0-9a-f]{12}$")
        self.assertEqual(self.commit(), first)
        (self.source / "file").write_text("two")
        self.assertEqual(self.commit(), f"{first}-dirty")
        self.git("commit", "-q", "-a", "-m", "two")
        second = self.git("rev-parse", "--short=12", "HEAD")
        self.assertNotEqual(second, first)
        self.assertEqual(self.commit(), second)
        self.git("tag", "-a", "v1", "-m", "v1")
        self.assertEqual(self.commit(), second)

    def test_an_unchanged_header_is_not_written_again(self):
        self.begin()
        self.commit()
        os.utime(self.header, (1, 1))
        self.commit()
        self.assertEqual(self.header.stat().st_mtime, 1)
        (self.source / "file").write_text("two")
        self.commit()
        self.assertNotEqual(self.header.stat().st_mtime, 1)

    def test_without_a_repository_or_git_it_is_empty(self):
        self.assertEqual(self.commit(), "")
        self.begin()
        self.assertEqual(self.commit(git="GIT_EXECUTABLE-NOTFOUND"), "")
        inner = self.source / "unpacked"  # a tarball within another repository
        inner.mkdir()
        self.source = inner
        self.assertEqual(self.commit(), "")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
