/* The compiled form of mirror.relay.gather.gather: the same batches in the same order, in less time.

   Where batches are small they are copied into one piece per topic straight from where they lie, and no object is made of
   any of them. */

#include "_native.h"

#include <string.h>

/* Attributes of mirror.relay.partition.Partition. */
static PyObject *name_outbox, *name_in_flight, *name_topic_head, *name_window, *name_queued;

int gather_prepare(void)
{
    static const Name names[] = {
        {&name_outbox, "outbox"}, {&name_in_flight, "in_flight"}, {&name_topic_head, "topic_head"},
        {&name_window, "window"}, {&name_queued, "queued"},
    };
    return intern(names, sizeof names / sizeof names[0]);
}

/* The batches of one topic. */
typedef struct {
    PyObject *topic;        /* its head; owned */
    Py_ssize_t count, size; /* batches and their bytes, without what is between them */
    PyObject *pieces;       /* a list; owned, NULL until it is made */
    char *to;               /* where the next batch is copied to, if they are copied */
} Group;

/* A batch that is under way now. */
typedef struct {
    const Entry *entry; /* in the partition's ring, which nobody touches meanwhile */
    Group *group;
} Sent;

typedef struct {
    PyObject *groups, *taken, *again, *holes; /* what is returned */
    PyObject *between;
    Py_ssize_t size, max_size;
    Group *group;
    Sent *sent;
    Py_ssize_t group_count, sent_count;
} Request;

enum Outcome { FAILED = -1, LOOKED_AT, FULL };

/* The group of the partition's topic, made if this is its first batch; NULL with an exception. */
static Group *group_of(Request *request, PyObject *partition)
{
    PyObject *topic = PyObject_GetAttr(partition, name_topic_head);
    if (topic == NULL)
        return NULL;
    Group *group = request->sent_count > 0 ? request->sent[request->sent_count - 1].group : NULL;
    if (group == NULL || group->topic != topic) {
        PyObject *number = PyDict_GetItemWithError(request->groups, topic); /* borrowed */
        group = NULL;
        if (number != NULL) {
            group = request->group + PyLong_AsSsize_t(number);
        } else if (!PyErr_Occurred() && (number = PyLong_FromSsize_t(request->group_count)) != NULL) {
            if (PyDict_SetItem(request->groups, topic, number) == 0) {
                group = request->group + request->group_count++;
                group->topic = Py_NewRef(topic);
            }
            Py_DECREF(number);
        }
    }
    Py_DECREF(topic);
    return group;
}

/* Bytes of the batch with its head; 0: it is none, but a hole; -1 with an exception. */
static Py_ssize_t size_of(const Entry *entry)
{
    if (entry->object == NULL)
        return entry->head_size + (entry->stop - entry->start);
    PyObject *head = PyTuple_GetItem(entry->object, 0); /* borrowed */
    const Py_ssize_t head_size = head != NULL ? PyBytes_Size(head) : -1;
    if (head_size <= 0)
        return head_size;
    PyObject *payload = PyTuple_GetItem(entry->object, 1);
    const Py_ssize_t payload_size = payload != NULL ? PyObject_Size(payload) : -1;
    return payload_size < 0 ? -1 : head_size + payload_size;
}

/* The first batch, of so many bytes, leaves the outbox and counts as under way. Whether one more could; -1 with an
   exception. */
static int send(Request *request, PyObject *partition, Outbox *outbox, Outbox *in_flight, Py_ssize_t size)
{
    Group *group = group_of(request, partition);
    if (group == NULL || PyList_Append(request->taken, partition) < 0)
        return -1;
    const Entry *entry = outbox_move_first(outbox, in_flight);
    if (entry == NULL)
        return -1;
    request->sent[request->sent_count++] = (Sent){.entry = entry, .group = group};
    request->size += size;
    group->count++;
    group->size += size;
    PyObject *window = PyObject_GetAttr(partition, name_window);
    const Py_ssize_t most = window != NULL ? PyLong_AsSsize_t(window) : -1;
    Py_XDECREF(window);
    return PyErr_Occurred() ? -1 : outbox->count > 0 && in_flight->count < most;
}

/* A batch of the partition, if it has one that fits; ``queued`` is false where it has to be offered again. */
static enum Outcome take_one(Request *request, PyObject *partition, Outbox *outbox, Outbox *in_flight)
{
    const Entry *entry = outbox_first(outbox);
    int more = 0;
    if (entry != NULL) {
        const Py_ssize_t size = size_of(entry);
        if (size < 0)
            return FAILED;
        if (size == 0) {
            if (in_flight->count == 0 && PyList_Append(request->holes, partition) < 0)
                return FAILED;
        } else {
            if (request->size > 0 && request->size + size > request->max_size)
                return FULL;
            if ((more = send(request, partition, outbox, in_flight, size)) < 0)
                return FAILED;
        }
    }
    const int noted =
        more ? PyList_Append(request->again, partition) : PyObject_SetAttr(partition, name_queued, Py_False);
    return noted < 0 ? FAILED : LOOKED_AT;
}

/* Its records as bytes in memory; to be released. 0, or -1 with an exception. */
static int records_of(const Entry *entry, Py_buffer *view, const char **start, Py_ssize_t *size)
{
    PyObject *payload = entry->object == NULL ? entry->buf : PyTuple_GetItem(entry->object, 1); /* borrowed */
    if (payload == NULL || PyObject_GetBuffer(payload, view, PyBUF_SIMPLE) < 0)
        return -1;
    *start = view->buf;
    *size = view->len;
    if (entry->object == NULL) {
        *start += entry->start;
        *size = entry->stop - entry->start;
    } else if (view->len != PyObject_Size(payload)) {
        /* The room for it was made by its length. */
        PyErr_SetString(PyExc_TypeError, "records that are not bytes");
        PyBuffer_Release(view);
        return -1;
    }
    return 0;
}

static char *copied(char *to, const char *from, Py_ssize_t size)
{
    memcpy(to, from, (size_t)size);
    return to + size;
}

/* All batches of a topic in one piece. 0, or -1 with an exception. */
static int copy_all(Request *request)
{
    const Py_ssize_t gap = PyBytes_Size(request->between);
    for (Group *group = request->group; group < request->group + request->group_count; group++) {
        PyObject *joined = PyBytes_FromStringAndSize(NULL, group->size + (group->count - 1) * gap);
        const int failed = joined == NULL || PyList_Append(group->pieces, joined) < 0;
        group->to = failed ? NULL : PyBytes_AsString(joined); /* the list keeps it */
        Py_XDECREF(joined);
        if (failed)
            return -1;
    }
    for (const Sent *sent = request->sent; sent < request->sent + request->sent_count; sent++) {
        const Entry *entry = sent->entry;
        Group *group = sent->group;
        PyObject *head = entry->object != NULL ? PyTuple_GetItem(entry->object, 0) : NULL; /* borrowed */
        Py_buffer view;
        const char *start;
        Py_ssize_t size;
        if (records_of(entry, &view, &start, &size) < 0)
            return -1;
        if (group->count < 0) /* its first has been copied */
            group->to = copied(group->to, PyBytes_AsString(request->between), gap);
        else
            group->count = -group->count;
        group->to = head != NULL ? copied(group->to, PyBytes_AsString(head), PyBytes_Size(head))
                                 : copied(group->to, (const char *)entry->head, entry->head_size);
        group->to = copied(group->to, start, size);
        PyBuffer_Release(&view);
    }
    for (Group *group = request->group; group < request->group + request->group_count; group++)
        group->count = -group->count;
    return 0;
}

/* What stands in front of a batch's records: ``between``, if one came before it, and its head; NULL with an exception. */
static PyObject *led_in(const Entry *entry, PyObject *between, int is_first)
{
    PyObject *object = entry->object != NULL ? PyTuple_GetItem(entry->object, 0) : NULL; /* borrowed */
    const Py_ssize_t gap = is_first ? 0 : PyBytes_Size(between);
    const Py_ssize_t size = object != NULL ? PyBytes_Size(object) : entry->head_size;
    if (object != NULL && gap == 0)
        return Py_NewRef(object);
    PyObject *made = PyBytes_FromStringAndSize(NULL, gap + size);
    if (made != NULL) {
        const char *head = object != NULL ? PyBytes_AsString(object) : (const char *)entry->head;
        copied(copied(PyBytes_AsString(made), PyBytes_AsString(between), gap), head, size);
    }
    return made;
}

/* Head and records of each batch as pieces of their own. 0, or -1 with an exception. */
static int refer_to_all(Request *request)
{
    int failed = 0;
    for (const Sent *sent = request->sent; !failed && sent < request->sent + request->sent_count; sent++) {
        const Entry *entry = sent->entry;
        PyObject *pieces = sent->group->pieces;
        PyObject *head = led_in(entry, request->between, PyList_Size(pieces) == 0);
        PyObject *records =
            entry->object != NULL ? Py_XNewRef(PyTuple_GetItem(entry->object, 1)) : entry_records(entry);
        failed = head == NULL || records == NULL || PyList_Append(pieces, head) < 0 || PyList_Append(pieces, records) < 0;
        Py_XDECREF(head);
        Py_XDECREF(records);
    }
    return failed ? -1 : 0;
}

/* Puts the pieces in the place of the groups' numbers. 0, or -1 with an exception. */
static int put_together(Request *request, Py_ssize_t join_below)
{
    for (Group *group = request->group; group < request->group + request->group_count; group++)
        if ((group->pieces = PyList_New(0)) == NULL)
            return -1;
    if ((request->size < join_below * request->sent_count ? copy_all(request) : refer_to_all(request)) < 0)
        return -1;
    for (Group *group = request->group; group < request->group + request->group_count; group++) {
        PyObject *found = Py_BuildValue("(nO)", group->count, group->pieces);
        const int failed = found == NULL || PyDict_SetItem(request->groups, group->topic, found) < 0;
        Py_XDECREF(found);
        if (failed)
            return -1;
    }
    return 0;
}

const char gather_doc[] = PyDoc_STR("gather(ready, max_size, between, join_below)\nSee mirror.relay.gather.gather.");

PyObject *gather(PyObject *module, PyObject *args)
{
    PyObject *ready, *found = NULL;
    Py_ssize_t join_below;
    Request request = {.size = 0};
    (void)module;
    if (!PyArg_ParseTuple(args, "O!nSn", &PyList_Type, &ready, &request.max_size, &request.between, &join_below))
        return NULL;
    const size_t most = (size_t)PyList_Size(ready) + 1; /* one more: of nothing, there may be no memory */
    request.groups = PyDict_New();
    request.taken = PyList_New(0);
    request.again = PyList_New(0);
    request.holes = PyList_New(0);
    request.group = PyMem_Calloc(most, sizeof *request.group);
    request.sent = PyMem_Calloc(most, sizeof *request.sent);
    enum Outcome outcome = LOOKED_AT;
    if (request.groups == NULL || request.taken == NULL || request.again == NULL || request.holes == NULL) {
        outcome = FAILED;
    } else if (request.group == NULL || request.sent == NULL) {
        PyErr_NoMemory();
        outcome = FAILED;
    }
    Py_ssize_t looked_at = 0;
    while (outcome == LOOKED_AT && looked_at < PyList_Size(ready)) {
        PyObject *partition = Py_NewRef(PyList_GetItem(ready, looked_at));
        Outbox *outbox = outbox_of(partition, name_outbox), *in_flight = NULL;
        if (outbox != NULL)
            in_flight = outbox_of(partition, name_in_flight);
        outcome = in_flight != NULL ? take_one(&request, partition, outbox, in_flight) : FAILED;
        looked_at += outcome == LOOKED_AT;
        Py_XDECREF((PyObject *)in_flight);
        Py_XDECREF((PyObject *)outbox);
        Py_DECREF(partition);
    }
    if (outcome != FAILED && put_together(&request, join_below) == 0)
        found = Py_BuildValue("(OOOOnn)", request.groups, request.taken, request.again, request.holes, looked_at,
                              request.size);
    for (Group *group = request.group; group < request.group + request.group_count; group++) {
        Py_XDECREF(group->topic);
        Py_XDECREF(group->pieces);
    }
    PyMem_Free(request.group);
    PyMem_Free(request.sent);
    Py_XDECREF(request.groups);
    Py_XDECREF(request.taken);
    Py_XDECREF(request.again);
    Py_XDECREF(request.holes);
    return found;
}
