/* Loops over librdkafka's public calls, one per record; in Python each call would create an object (ADR 0016).
 *
 * Owns no memory and no rule: `native.py` finds librdkafka and gives its calls to `herdmesh_bind`; `batch_consumer.py` and
 * `column_queue.py` own what the arrays mean. It needs neither Python's headers nor librdkafka's, so that a C compiler is
 * all it takes to build. What it repeats of librdkafka's public header (one struct, some enums) is compared with that
 * header when it is compiled on a machine that has it.
 *
 * Invariant: one `herdmesh_release` frees all messages of a `herdmesh_take`.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

typedef struct { /* rd_kafka_message_t */
    int err;
    void *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private;
} message;

typedef struct { /* `native.ROW`; a length of -1: null; a time of 0 in a row to put: no timestamp */
    uint64_t value;
    int64_t value_length;
    uint64_t key;
    int64_t key_length;
    int64_t offset;
    int64_t time_ms;
    uint64_t topic;
    int32_t partition;
    int32_t error;
    int32_t time_kind;
    int32_t headers;
} row;

typedef struct { /* `native.Summary`: of all rows of a `herdmesh_take`; an error counts only in `errors` */
    int64_t value_bytes;
    int64_t key_bytes;
    int64_t values; /* values that are not null */
    int64_t keys;
    int64_t headers;
    int64_t errors;
    int64_t strangers; /* rows of another partition than the first row's */
} summary;

typedef struct { /* in the order of `native._CALLS` */
    ssize_t (*consume_batch_queue)(void *queue, int timeout_ms, message **messages, size_t size);
    void (*message_destroy)(message *);
    int64_t (*message_timestamp)(const message *, int *kind);
    int (*message_headers)(const message *, void **headers);
    size_t (*header_cnt)(const void *headers);
    int (*header_get_all)(const void *headers, size_t at, const char **name, const void **value, size_t *size);
    int (*producev)(void *client, ...);
} calls;

enum { V_END = 0, V_RKT = 2, V_PARTITION = 3, V_VALUE = 4, V_KEY = 5, V_MSGFLAGS = 7, V_TIMESTAMP = 8 };
enum { F_COPY = 2, QUEUE_FULL = -184 };

#if defined(__has_include)
#if __has_include(<librdkafka/rdkafka.h>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-qualifiers" /* the header's own, where it is no system header */
#include <librdkafka/rdkafka.h>
#pragma GCC diagnostic pop
#define HERDMESH_CHECKED_AGAINST_RDKAFKA 1 /* the tests look for it */
#define SAME_FIELD(ours, theirs)                                                                                       \
    static_assert(offsetof(message, ours) == offsetof(rd_kafka_message_t, theirs), "rd_kafka_message_t." #theirs);     \
    static_assert(sizeof(((message *)0)->ours) == sizeof(((rd_kafka_message_t *)0)->theirs), "size of ." #theirs)
#define SAME_VALUE(ours, theirs) static_assert((int)ours == (int)theirs, #theirs)
SAME_FIELD(err, err);
SAME_FIELD(topic, rkt);
SAME_FIELD(partition, partition);
SAME_FIELD(payload, payload);
SAME_FIELD(len, len);
SAME_FIELD(key, key);
SAME_FIELD(key_len, key_len);
SAME_FIELD(offset, offset);
SAME_FIELD(private, _private);
static_assert(sizeof(message) == sizeof(rd_kafka_message_t), "size of rd_kafka_message_t");
SAME_VALUE(V_END, RD_KAFKA_VTYPE_END);
SAME_VALUE(V_RKT, RD_KAFKA_VTYPE_RKT);
SAME_VALUE(V_PARTITION, RD_KAFKA_VTYPE_PARTITION);
SAME_VALUE(V_VALUE, RD_KAFKA_VTYPE_VALUE);
SAME_VALUE(V_KEY, RD_KAFKA_VTYPE_KEY);
SAME_VALUE(V_MSGFLAGS, RD_KAFKA_VTYPE_MSGFLAGS);
SAME_VALUE(V_TIMESTAMP, RD_KAFKA_VTYPE_TIMESTAMP);
SAME_VALUE(F_COPY, RD_KAFKA_MSG_F_COPY);
SAME_VALUE(QUEUE_FULL, RD_KAFKA_RESP_ERR__QUEUE_FULL);
#endif
#endif

static calls kafka;

void herdmesh_bind(const calls *found) { kafka = *found; }

/* Takes at most `size` messages of a queue, waiting so long for all of them, and describes each in its row. Returns how
 * many; -1: librdkafka failed, and `rd_kafka_last_error` has the reason. */
long herdmesh_take(void *queue, int timeout_ms, message **messages, row *rows, summary *of_all, long size) {
    long count = (long)kafka.consume_batch_queue(queue, timeout_ms, messages, (size_t)size);
    memset(of_all, 0, sizeof *of_all);
    for (long at = 0; at < count; at++) {
        const message *one = messages[at];
        row *to = &rows[at];
        void *headers = NULL;
        int kind = 0;
        to->value = (uint64_t)one->payload;
        to->value_length = one->payload ? (int64_t)one->len : -1;
        to->key = (uint64_t)one->key;
        to->key_length = one->key ? (int64_t)one->key_len : -1;
        to->offset = one->offset;
        to->topic = (uint64_t)one->topic;
        to->partition = one->partition;
        to->error = one->err;
        to->headers = 0;
        to->time_ms = -1;
        if (!one->err) {
            to->time_ms = kafka.message_timestamp(one, &kind);
            if (!kafka.message_headers(one, &headers))
                to->headers = (int32_t)kafka.header_cnt(headers);
        }
        to->time_kind = kind;
        of_all->strangers += one->topic != messages[0]->topic || one->partition != messages[0]->partition;
        of_all->errors += !!one->err;
        if (one->err) /* its value is the reason */
            continue;
        of_all->values += !!one->payload;
        of_all->value_bytes += one->payload ? to->value_length : 0;
        of_all->keys += !!one->key;
        of_all->key_bytes += one->key ? to->key_length : 0;
        of_all->headers += to->headers;
    }
    return count;
}

void herdmesh_release(message **messages, long count) {
    for (long at = 0; at < count; at++)
        kafka.message_destroy(messages[at]);
}

/* Copies the values, each followed by an LF, and the keys without one; fills `places` with their places in the copies. */
void herdmesh_copy(const row *rows, long count, char *values, char *keys, uint64_t *places) {
    char *value = values, *key = keys;
    for (long at = 0; at < count; at++) {
        const row *of = &rows[at];
        places[at] = (uint64_t)(value - values);
        places[count + at] = (uint64_t)of->value_length;
        if (of->value_length >= 0) {
            memcpy(value, (const void *)of->value, (size_t)of->value_length);
            value += of->value_length;
            *value++ = '\n';
        }
        places[2 * count + at] = (uint64_t)(key - keys);
        places[3 * count + at] = (uint64_t)of->key_length;
        if (of->key_length >= 0) {
            memcpy(key, (const void *)of->key, (size_t)of->key_length);
            key += of->key_length;
        }
    }
}

/* Fills `lengths` with the lengths of header names and values (-1: null), message by message, and returns the bytes of
 * all; with `data`, copies them there, name and value in turn. */
long herdmesh_headers(message **messages, long count, int64_t *lengths, char *data) {
    long bytes = 0, found = 0;
    for (long at = 0; at < count; at++) {
        void *headers = NULL;
        if (messages[at]->err || kafka.message_headers(messages[at], &headers))
            continue;
        const char *name;
        const void *value;
        size_t size;
        for (size_t place = 0; !kafka.header_get_all(headers, place, &name, &value, &size); place++) {
            size_t name_size = strlen(name);
            lengths[found++] = (int64_t)name_size;
            lengths[found++] = value ? (int64_t)size : -1;
            if (data) {
                memcpy(data + bytes, name, name_size);
                if (value)
                    memcpy(data + bytes + name_size, value, size);
            }
            bytes += (long)(name_size + (value ? size : 0));
        }
    }
    return bytes;
}

/* Queues records with their times; `rows[].error` has the error of each. None is queued after the first without room. */
long herdmesh_put(void *client, void *topic, int partition, row *rows, long count) {
    long queued = 0;
    for (long at = 0; at < count; at++) {
        row *of = &rows[at];
        of->error = kafka.producev(
            client, V_RKT, topic, V_PARTITION, partition, V_MSGFLAGS, F_COPY,
            V_VALUE, (void *)of->value, of->value_length < 0 ? (size_t)0 : (size_t)of->value_length,
            V_KEY, (void *)of->key, of->key_length < 0 ? (size_t)0 : (size_t)of->key_length,
            V_TIMESTAMP, of->time_ms, V_END);
        if (of->error == QUEUE_FULL) {
            for (; at < count; at++)
                rows[at].error = QUEUE_FULL;
            break;
        }
        queued += !of->error;
    }
    return queued;
}
