/* The compiled form of mirror.relay.gather.gather: the same batches in the same order, in less time. */

#include "_native.h"

/* Attributes of mirror.relay.partition.Partition, and a method of its queue of batches under way. */
static PyObject *name_outbox, *name_in_flight, *name_topic_head, *name_window, *name_queued, *name_append;

int gather_prepare(void)
{
    static const struct {
        PyObject **name;
        const char *text;
    } names[] = {
        {&name_outbox, "outbox"}, {&name_in_flight, "in_flight"}, {&name_topic_head, "topic_head"},
        {&name_window, "window"}, {&name_queued, "queued"},       {&name_append, "append"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (*names[i].name == NULL && (*names[i].name = PyUnicode_InternFromString(names[i].text)) == NULL)
            return -1;
    return 0;
}

typedef struct {
    PyObject *groups, *taken, *again, *holes;
    PyObject *between;
    Py_ssize_t size, max_size;
} Request;

enum Outcome { FAILED = -1, LOOKED_AT, FULL };

/* Puts a batch behind the others of its topic. 0, or -1 with an exception. */
static int put(Request *request, PyObject *partition, PyObject *head, PyObject *payload)
{
    int failed = -1;
    PyObject *topic = PyObject_GetAttr(partition, name_topic_head), *joined = NULL;
    if (topic == NULL)
        return -1;
    PyObject *group = PyDict_GetItemWithError(request->groups, topic); /* borrowed */
    if (group != NULL) {
        if (PyBytes_Size(request->between) > 0)
            joined = PySequence_Concat(request->between, head);
        else
            joined = Py_NewRef(head);
        if (joined != NULL && PyList_Append(group, joined) == 0)
            failed = PyList_Append(group, payload);
    } else if (!PyErr_Occurred()) {
        group = PyList_New(0);
        if (group != NULL && PyList_Append(group, head) == 0 && PyList_Append(group, payload) == 0)
            failed = PyDict_SetItem(request->groups, topic, group);
        Py_XDECREF(group);
    }
    Py_XDECREF(joined);
    Py_DECREF(topic);
    return failed;
}

/* The batch leaves the outbox and counts as under way. Whether one more could; -1 with an exception. */
static int send(PyObject *partition, Outbox *outbox, PyObject *in_flight, PyObject *batch)
{
    PyObject *added = PyObject_CallMethodObjArgs(in_flight, name_append, batch, NULL), *window = NULL;
    int more = -1;
    if (added != NULL) {
        outbox_drop_first(outbox);
        window = PyObject_GetAttr(partition, name_window);
    }
    if (window != NULL) {
        const Py_ssize_t most = PyLong_AsSsize_t(window), sent = PyObject_Size(in_flight);
        if (!PyErr_Occurred())
            more = outbox->count > 0 && sent < most;
    }
    Py_XDECREF(window);
    Py_XDECREF(added);
    return more;
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

/* A batch of the partition, if it has one that fits; ``queued`` is false where it has to be offered again. */
static enum Outcome take_one(Request *request, PyObject *partition, Outbox *outbox, PyObject *in_flight)
{
    const Entry *entry = outbox_first(outbox);
    int more = 0;
    if (entry != NULL) {
        const Py_ssize_t size = size_of(entry);
        if (size < 0)
            return FAILED;
        if (size == 0) {
            const Py_ssize_t sent = PyObject_Size(in_flight);
            if (sent < 0 || (sent == 0 && PyList_Append(request->holes, partition) < 0))
                return FAILED;
        } else {
            if (request->size > 0 && request->size + size > request->max_size)
                return FULL;
            PyObject *batch = entry_object(entry);
            more = -1;
            if (batch != NULL && put(request, partition, PyTuple_GetItem(batch, 0), PyTuple_GetItem(batch, 1)) == 0 &&
                PyList_Append(request->taken, partition) == 0)
                more = send(partition, outbox, in_flight, batch);
            Py_XDECREF(batch);
            if (more < 0)
                return FAILED;
            request->size += size;
        }
    }
    const int noted =
        more ? PyList_Append(request->again, partition) : PyObject_SetAttr(partition, name_queued, Py_False);
    return noted < 0 ? FAILED : LOOKED_AT;
}

const char gather_doc[] = PyDoc_STR("gather(ready, max_size, between)\nSee mirror.relay.gather.gather.");

PyObject *gather(PyObject *module, PyObject *args)
{
    PyObject *ready, *found = NULL;
    Request request = {.size = 0};
    (void)module;
    if (!PyArg_ParseTuple(args, "O!nS", &PyList_Type, &ready, &request.max_size, &request.between))
        return NULL;
    request.groups = PyDict_New();
    request.taken = PyList_New(0);
    request.again = PyList_New(0);
    request.holes = PyList_New(0);
    enum Outcome outcome = LOOKED_AT;
    if (request.groups == NULL || request.taken == NULL || request.again == NULL || request.holes == NULL)
        outcome = FAILED;
    Py_ssize_t looked_at = 0;
    while (outcome == LOOKED_AT && looked_at < PyList_Size(ready)) {
        PyObject *partition = Py_NewRef(PyList_GetItem(ready, looked_at));
        PyObject *outbox = PyObject_GetAttr(partition, name_outbox), *in_flight = NULL;
        if (outbox != NULL)
            in_flight = PyObject_GetAttr(partition, name_in_flight);
        outcome = FAILED;
        if (in_flight != NULL && Py_IS_TYPE(outbox, (PyTypeObject *)outbox_type()))
            outcome = take_one(&request, partition, (Outbox *)outbox, in_flight);
        else if (in_flight != NULL)
            PyErr_SetString(PyExc_TypeError, "an outbox of another form");
        looked_at += outcome == LOOKED_AT;
        Py_XDECREF(in_flight);
        Py_XDECREF(outbox);
        Py_DECREF(partition);
    }
    if (outcome != FAILED)
        found = Py_BuildValue("(OOOOnn)", request.groups, request.taken, request.again, request.holes, looked_at,
                              request.size);
    Py_XDECREF(request.groups);
    Py_XDECREF(request.taken);
    Py_XDECREF(request.again);
    Py_XDECREF(request.holes);
    return found;
}
