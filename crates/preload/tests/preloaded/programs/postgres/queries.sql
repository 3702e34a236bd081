-- Sorts, hashes, joins, aggregates and windows, with little memory and with much, in one process and in several.
CREATE SCHEMA queries; SET search_path = queries;
CREATE TABLE t AS SELECT g AS id, g % 997 AS k, md5(g::text) AS m, g::bigint * 7919 % 100003 AS v FROM generate_series(1, 40000) g;
CREATE TABLE u AS SELECT g AS k, repeat(chr(97 + g % 26), g % 90) AS name FROM generate_series(0, 996) g;
ANALYZE t; ANALYZE u;
PREPARE ordered AS SELECT count(*), md5(string_agg(m, '' ORDER BY m DESC, id)) FROM t;
PREPARE grouped AS SELECT count(*), sum(n), sum(top::numeric) FROM (SELECT m, count(*) n, max(v) top FROM t GROUP BY m) g;
PREPARE joined(int) AS SELECT count(*), sum(length(name)), md5(string_agg(m, '' ORDER BY id)) FROM t JOIN u USING (k) WHERE v > $1;
PREPARE ranked AS SELECT sum(r), sum(l), sum(s) FROM (SELECT rank() OVER w r, lag(v, 3, 0) OVER w l,
    sum(v) OVER (PARTITION BY k ORDER BY v ROWS BETWEEN 5 PRECEDING AND CURRENT ROW) s FROM t WINDOW w AS (PARTITION BY k ORDER BY v, id)) r;
PREPARE sets AS SELECT k % 10 AS a, v % 3 AS b, count(DISTINCT m), sum(v) FROM t GROUP BY GROUPING SETS ((1, 2), (1), ()) ORDER BY 1, 2;
SET work_mem = '64kB';
EXECUTE ordered; EXECUTE grouped; EXECUTE joined(500); EXECUTE ranked; EXECUTE sets;
SET work_mem = '128MB';
EXECUTE ordered; EXECUTE grouped; EXECUTE joined(1500); EXECUTE ranked; EXECUTE sets;
-- Workers, which hand rows and hash tables to each other.
SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET max_parallel_workers_per_gather = 3;
EXPLAIN (COSTS OFF) SELECT count(*) FROM t JOIN t AS s ON t.v = s.id;
SELECT count(*), sum(s.v), max(t.m) FROM t JOIN t AS s ON t.v = s.id;
SELECT k, count(*), max(m), sum(v) FROM t GROUP BY k ORDER BY k LIMIT 20 OFFSET 400;
SELECT md5(string_agg(m, '')) FROM (SELECT m FROM t WHERE v % 7 = 1 ORDER BY m) s;
-- Just-in-time compilation, where the server has it: all of LLVM on our heap.
SET max_parallel_workers_per_gather = 0; SET jit = on; SET jit_above_cost = 0; SET jit_optimize_above_cost = 0; SET jit_inline_above_cost = 0;
SELECT sum(v * 3 + k), count(*) FILTER (WHERE m < '8'), max(length(m) + k) FROM t WHERE v BETWEEN 100 AND 90000;
EXECUTE joined(2500);
RESET ALL; SET search_path = queries;
WITH RECURSIVE up(n, text) AS (SELECT 1, 'a' UNION ALL SELECT n + 1, text || n FROM up WHERE n < 1500) SELECT max(n), max(length(text)), md5(string_agg(text, ',' ORDER BY n)) FROM up;
BEGIN;
DECLARE page SCROLL CURSOR WITH HOLD FOR SELECT id, m FROM t ORDER BY m;
FETCH 3 FROM page; MOVE 30000 IN page; FETCH BACKWARD 2 FROM page; FETCH LAST FROM page;
COMMIT;
FETCH FIRST FROM page; CLOSE page;
SELECT 'queries end';
