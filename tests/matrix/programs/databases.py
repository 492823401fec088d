"""Databases: sqlite3 in memory, redis-server, PostgreSQL."""

import glob
import os
import re
import shutil
import subprocess
import time

from .redis import Client
from program import Failed, Program, digest, run_quietly


class Sqlite(Program):
    name = "sqlite3"
    about = "sqlite3, a database in memory: recursive CTE, index, joins"
    needs = {"sqlite3": "sqlite3"}

    def prepare(self, job):
        rows = job.pick(1_200_000, 2_400_000)
        (job.inputs / "script.sql").write_text(f"""
create table a(id integer primary key, k integer, name text, score real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows})
insert into a select i, i * 7919 % 100003, 'name ' || (i * 31 % 65521) || ' of many', i * 0.25 from n;
create index a_k on a(k);
select count(*), sum(k), sum(length(name)), sum(score) from a;
create table b as select k, count(*) as many, min(id) as first from a group by k;
create index b_k on b(k);
select count(*), sum(a.id % 1000 * b.many), max(b.first) from a join b using (k);
update a set name = name || ' changed', score = score + 1 where id % 5 = 0;
delete from a where id % 7 = 3;
select count(*), sum(length(name)), sum(score), group_concat(distinct length(name)) from a;
select name, count(*) from a group by name order by 2 desc, 1 limit 20;
select sum(a.k * 3 + c.k) from a join a as c on c.id = a.id * 2 + 1;
pragma integrity_check;
""")

    def command(self, job):
        return ["sqlite3", "-bail", ":memory:", f".read {job.inputs / 'script.sql'}"]

    def check(self, job):
        if job.stdout.read_text().split()[-1:] != ["ok"]:
            raise Failed("integrity_check is not ok")
        return digest(job.stdout)


class Redis(Program):
    name = "redis"
    about = "redis-server, written and read while BGSAVE forks, then loaded again"
    needs = {"redis-server": "redis-server"}

    def command(self, job):
        return [
            "redis-server", "--port", "0", "--unixsocket", job.dir / "socket", "--dir", job.dir,
            "--save", "", "--appendonly", "no", "--loglevel", "notice", "--daemonize", "no",
        ]

    def drive(self, job):
        count = job.pick(400_000, 900_000)
        with Client(job.dir / "socket", job.remaining()) as client:
            client.write(range(count), 0)
            self.verify(client, count, lambda n: 0)
            client.call(b"BGSAVE")
            # Every third key is written anew while the child saves the old ones.
            client.write(range(0, count, 3), 1)
            client.wait_for_save(job.remaining())
            shutil.copy(job.dir / "dump.rdb", job.dir / "first.rdb")
            version = lambda n: 1 if n % 3 == 0 else 0
            self.verify(client, count, version)
            client.delete(range(0, count, 10))
            client.call(b"BGSAVE")
            client.wait_for_save(job.remaining())
            self.verify(client, count, lambda n: None if n % 10 == 0 else version(n))
            client.quit()

    def verify(self, client, count, version):
        for n, value in client.read(range(count)):
            expected = None if version(n) is None else Client.value(n, version(n))
            if value != expected:
                raise Failed(f"key {n} has {value!r:.60}, not {expected!r:.60}")

    def check(self, job):
        """What was saved is loaded by a fresh server, bare."""
        count = job.pick(400_000, 900_000)
        version = lambda n: 1 if n % 3 == 0 else 0
        self.load(job, "first.rdb", count, lambda n: 0)
        return self.load(job, "dump.rdb", count, lambda n: None if n % 10 == 0 else version(n))

    def load(self, job, file, count, version):
        path = job.dir / "fresh"
        server = subprocess.Popen(
            [
                "redis-server", "--port", "0", "--unixsocket", path, "--dir", job.dir,
                "--dbfilename", file, "--save", "", "--daemonize", "no",
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        try:
            with Client(path, 60.0) as client:
                self.verify(client, count, version)
                found = client.call(b"DBSIZE")
                client.quit()
        finally:
            server.wait()
        return f"{found} keys"


class Postgres(Program):
    name = "postgres"
    about = "PostgreSQL, pgbench, then large sorts and hashes, as its own user with CAP_SYS_PTRACE"
    needs = {"/usr/lib/postgresql/*/bin/postgres": "postgresql", "setpriv": "util-linux"}
    # The manager opens userfaultfd in the server's own processes, so they need the
    # one capability as the user they run as.
    drop = [
        "setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups",
        "--inh-caps", "+sys_ptrace", "--ambient-caps", "+sys_ptrace",
    ]
    outer = drop

    def bin(self, name):
        return sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))[-1]

    def prepare(self, job):
        """A cluster with pgbench's tables, made bare; each run gets a copy."""
        os.chmod(job.inputs, 0o777)
        cluster = job.inputs / "cluster"
        run_quietly([*self.drop, self.bin("initdb"), "-D", cluster, "-A", "trust", "--no-sync",
                     "-E", "UTF8", "--locale", "C"], cwd="/")

    def command(self, job):
        cluster = job.dir / "cluster"
        run_quietly([*self.drop, "cp", "-a", job.inputs / "cluster", cluster])
        settings = {
            "listen_addresses": "", "unix_socket_directories": job.dir, "fsync": "off",
            "shared_buffers": "64MB", "work_mem": "1GB", "maintenance_work_mem": "1GB",
            "max_parallel_workers_per_gather": "0", "jit": "off", "autovacuum": "off",
            "logging_collector": "off", "dynamic_shared_memory_type": "mmap",
        }
        words = [self.bin("postgres"), "-D", cluster]
        for key, value in settings.items():
            words += ["-c", f"{key}={value}"]
        return words

    def drive(self, job):
        environment = dict(
            job.environment, PGHOST=str(job.dir), PGUSER="postgres", PGDATABASE="postgres"
        )

        def client(*words):
            return run_quietly(words, env=environment, cwd="/", timeout=job.remaining())

        deadline = time.monotonic() + min(job.remaining(), 60)
        while subprocess.run([self.bin("pg_isready"), "-q"], env=environment).returncode != 0:
            if time.monotonic() > deadline:
                raise Failed("the server does not answer")
            time.sleep(0.1)
        scale, transactions = job.pick(2, 5), job.pick(500, 3000)
        client(self.bin("pgbench"), "-i", "-q", "-s", scale)
        client(self.bin("pgbench"), "-n", "-c", "1", "-j", "1", "-t", transactions, "--random-seed=7")
        rows = job.pick(1_000_000, 2_000_000)
        job.notes.append(client(self.bin("psql"), "-qAt", "-v", "ON_ERROR_STOP=1", "-c", f"""
select sum(abalance), sum(hashtext(aid::text || abalance)) from pgbench_accounts;
select sum(tbalance) from pgbench_tellers; select count(*), sum(delta) from pgbench_history;
create table big as select i, i::bigint * 7919 % 1000003 as k, md5(i::text) as word from generate_series(1, {rows}) i;
create index big_word on big(word);
select sum(hashtext(word || n)::bigint * n) from (select word, row_number() over (order by word) as n from big) s;
select count(*), sum(length(words)) from (select k % 50000, string_agg(word, ',' order by i) as words from big group by 1) s;
select count(*), sum(a.i % 100) from big a join big b on a.word = b.word;
"""))
        # A fast shutdown, as an administrator would ask for it.
        client(*self.drop, self.bin("pg_ctl"), "-D", job.dir / "cluster", "-m", "fast", "-w", "stop")

    def check(self, job):
        return re.sub(r"\s+", " ", "".join(job.notes)).strip()


class PostgresDropped(Postgres):
    name = "postgres-drop"
    about = "the same, started as root under zfolio by setpriv, which keeps no capability"
    unmanaged = True
    outer = []

    def command(self, job):
        plain = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups"]
        return [*plain, *super().command(job)]


PROGRAMS = [Sqlite, Redis, Postgres, PostgresDropped]
