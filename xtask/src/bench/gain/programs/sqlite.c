/* Random rows of a SQLite table in memory by primary key, one in eight an update. Argument: rows */

#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static sqlite3 *db;

static void check(int code) {
    if (code != SQLITE_OK && code != SQLITE_ROW && code != SQLITE_DONE) {
        fprintf(stderr, "sqlite: %s\n", sqlite3_errmsg(db));
        exit(1);
    }
}

static sqlite3_stmt *prepared(const char *sql) {
    sqlite3_stmt *statement;
    check(sqlite3_prepare_v2(db, sql, -1, &statement, NULL));
    return statement;
}

static void run(sqlite3_stmt *statement, int64_t id, const char *text) {
    sqlite3_bind_int64(statement, 1, id);
    if (text)
        sqlite3_bind_text(statement, 2, text, -1, SQLITE_STATIC);
    check(sqlite3_step(statement));
    check(sqlite3_reset(statement));
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int count, char **args) {
    int64_t rows = count > 1 ? atoll(args[1]) : 0;
    char text[101];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    check(sqlite3_open(":memory:", &db));
    check(sqlite3_exec(db, "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT); BEGIN", 0, 0, 0));
    sqlite3_stmt *insert = prepared("INSERT INTO t VALUES (?1, ?2)");
    for (int64_t id = 0; id < rows; id++)
        run(insert, id, text);
    check(sqlite3_exec(db, "COMMIT", 0, 0, 0));
    sqlite3_stmt *get = prepared("SELECT name FROM t WHERE id = ?1");
    sqlite3_stmt *set = prepared("UPDATE t SET name = ?2 WHERE id = ?1");
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    uint64_t random = 88172645463325252;
    for (;;) {
        double begun = now();
        long ops = 0;
        for (; now() - begun < 0.02; ops += 256) {
            for (int i = 0; i < 256; i++) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                int update = i % 8 == 0;
                run(update ? set : get, random % rows, update ? text : NULL);
            }
        }
        if (printf("ops %ld\n", ops) < 0)
            return 1;
    }
}
