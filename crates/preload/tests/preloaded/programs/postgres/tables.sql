-- Indexes of every kind, COPY both ways, partitions, triggers, vacuum.
CREATE SCHEMA tables; SET search_path = tables;
CREATE TABLE t (id int, words text[], place point, span int4range, name text);
INSERT INTO t SELECT g, ARRAY['a' || g % 100, 'b' || g % 37, 'c' || g], point(g % 200, g / 200), int4range(g, g + g % 50), md5(g::text) FROM generate_series(1, 25000) g;
SET maintenance_work_mem = '1MB';
CREATE INDEX ON t USING gin (words); CREATE UNIQUE INDEX ON t (id); CREATE INDEX ON t USING gist (place);
SET maintenance_work_mem = '64MB';
CREATE INDEX ON t USING gist (span); CREATE INDEX ON t USING spgist (name); CREATE INDEX ON t USING brin (id); CREATE INDEX ON t USING hash (name);
CREATE INDEX ON t (lower(name), id DESC) WHERE id % 2 = 0;
ANALYZE t; SET enable_seqscan = off; SET jit = off;
SELECT count(*), sum(id) FROM t WHERE words @> ARRAY['a7', 'b7'];
SELECT id FROM t WHERE words && ARRAY['c77', 'c24999'] ORDER BY id;
SELECT count(*) FROM t WHERE place <@ box '((10,10),(50,60))';
SELECT id FROM t ORDER BY place <-> point(100.2, 60.1), id LIMIT 3;
SELECT count(*) FROM t WHERE span && int4range(500, 600);
SELECT count(*) FROM t WHERE name LIKE 'abc%'; SELECT id FROM t WHERE name = md5('777');
\copy t to 'rows'
\copy (SELECT * FROM t ORDER BY id) to program 'md5sum' with (format csv, header, force_quote *)
\copy (SELECT * FROM t ORDER BY id) to 'rows.binary' with (format binary)
CREATE TABLE back (LIKE t INCLUDING ALL); CREATE TABLE binary_back (LIKE t);
\copy back from 'rows'
\copy binary_back from 'rows.binary' with (format binary)
SELECT count(*) FROM (SELECT t::text FROM t EXCEPT SELECT b::text FROM back b) lost;
SELECT count(*) FROM (SELECT t::text FROM t EXCEPT SELECT b::text FROM binary_back b) lost;
\copy back from 'rows'
COPY back (id, name) FROM STDIN;
100001	first
wrong	second
\.
UPDATE back SET words = words || ARRAY['new'], span = int4range(id, id + 500) WHERE id % 3 = 0;
DELETE FROM back WHERE id % 4 = 1;
VACUUM (FREEZE, ANALYZE) back; REINDEX TABLE back; CLUSTER back USING back_id_idx;
SELECT count(*), count(*) FILTER (WHERE 'new' = ANY (words)) FROM back;
SELECT count(*) FROM back WHERE words @> ARRAY['new', 'a3'];
RESET enable_seqscan;
CREATE TABLE parts (id int, v text) PARTITION BY HASH (id);
SELECT format('CREATE TABLE part%s PARTITION OF parts FOR VALUES WITH (MODULUS 40, REMAINDER %s)', g, g) FROM generate_series(0, 39) g \gexec
INSERT INTO parts SELECT g, md5(g::text) FROM generate_series(1, 8000) g;
SELECT count(*), md5(string_agg(v, '' ORDER BY id)) FROM parts; SELECT count(*) FROM parts a JOIN parts b USING (id);
CREATE MATERIALIZED VIEW seen AS SELECT id % 10 AS k, count(*) FROM parts GROUP BY 1; REFRESH MATERIALIZED VIEW seen;
SELECT * FROM seen ORDER BY k;
ALTER TABLE parts ADD UNIQUE (id);
INSERT INTO parts SELECT g, 'n' FROM generate_series(7990, 8010) g ON CONFLICT (id) DO UPDATE SET v = 'm';
SELECT v, count(*) FROM parts WHERE id > 7980 AND length(v) = 1 GROUP BY v ORDER BY v;
SELECT 'tables end';
