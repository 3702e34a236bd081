-- PL/pgSQL: loops, exceptions that undo subtransactions, savepoints, dynamic statements, recursion too deep.
CREATE SCHEMA code; SET search_path = code;
CREATE TABLE log (n int PRIMARY KEY CHECK (n <> 13), text text);
CREATE FUNCTION fill(low int, high int) RETURNS TABLE (kept int, failed int) LANGUAGE plpgsql AS $$
BEGIN
    kept := 0; failed := 0;
    FOR i IN low..high LOOP
        BEGIN
            INSERT INTO log VALUES (CASE WHEN i % 5 = 0 THEN i - 1 ELSE i END, repeat(md5(i::text), i % 20));
            IF i % 7 = 0 THEN PERFORM 1 / (i % 7); END IF;
            kept := kept + 1;
        EXCEPTION WHEN unique_violation OR check_violation THEN failed := failed + 1;
            WHEN division_by_zero THEN failed := failed + 1000000;
        END;
    END LOOP;
    RETURN NEXT;
END $$;
SELECT * FROM fill(1, 6000);
SELECT count(*), sum(length(text)), md5(string_agg(text, '' ORDER BY n)) FROM log;
CREATE FUNCTION sieve(top int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE composite bool[] := array_fill(false, ARRAY[top]); total bigint := 0;
BEGIN
    FOR i IN 2..top LOOP
        CONTINUE WHEN composite[i];
        total := total + i;
        FOR j IN i * 2..top BY i LOOP composite[j] := true; END LOOP;
    END LOOP;
    RETURN total;
END $$;
SELECT sieve(30000);
CREATE FUNCTION words(count int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE text text := ''; row record; seen jsonb := '{}';
BEGIN
    FOR row IN EXECUTE format('SELECT n, left(text, 5) AS t FROM log WHERE n <= %s ORDER BY n', count) LOOP
        text := text || row.t || ';';
        seen := seen || jsonb_build_object(row.t, row.n);
    END LOOP;
    RETURN md5(text || seen::text);
END $$;
SELECT words(1500);
CREATE FUNCTION deep(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN CASE WHEN n = 0 THEN 0 ELSE 1 + deep(n - 1) END; END $$;
SELECT deep(150);
\set VERBOSITY terse
SELECT deep(1000000);
SELECT deep(100);
\set VERBOSITY default
CREATE FUNCTION changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.text := NEW.n || upper(NEW.text); RETURN NEW; END $$;
CREATE TRIGGER changed BEFORE UPDATE ON log FOR EACH ROW EXECUTE FUNCTION changed();
BEGIN;
UPDATE log SET text = 'a' WHERE n % 2 = 0; SAVEPOINT one;
UPDATE log SET text = 'b' WHERE n % 3 = 0; SAVEPOINT two;
DELETE FROM log; SELECT nothing FROM log; ROLLBACK TO two;
INSERT INTO log VALUES (-13, 'c'); RELEASE two; ROLLBACK TO one;
UPDATE log SET text = 'd' WHERE n % 4 = 0;
COMMIT;
SELECT left(text, -length(n::text)), left(text, 0), count(*) FROM log WHERE length(text) < 8 GROUP BY 1, 2 ORDER BY 1 LIMIT 5;
SELECT md5(string_agg(text, '' ORDER BY n)), count(*) FROM log;
DO $$ BEGIN FOR i IN 1..2000 LOOP EXECUTE format('PREPARE p%s AS SELECT $1::int + %s', i, i); END LOOP; END $$;
EXECUTE p777(1); SELECT count(*) FROM pg_prepared_statements; DEALLOCATE ALL;
DO $$ BEGIN FOR i IN 1..200 LOOP EXECUTE format('CREATE TEMP TABLE temp%s (a int, b text DEFAULT %L)', i, repeat('d', i)); END LOOP; END $$;
SELECT count(*), max(length(column_default)) FROM information_schema.columns WHERE table_name LIKE 'temp%' AND column_name = 'b';
DISCARD ALL;
SELECT 1 / 0; SELECT 'not a number'::int; SELECT missing(); SELECT * FROM code.log WHERE n = (SELECT n FROM code.log);
SET statement_timeout = 200; SELECT count(*) FROM generate_series(1, 1000000000000); RESET statement_timeout;
SELECT 'code end';
