/* The compiled form of mirror.relay.gather.gather: the same batches in the same order, in less time. */

#include "_native.h"

/* Attributes of mirror.relay.partition.Partition, and methods of its deques. */
static PyObject *name_outbox, *name_in_flight, *name_topic_head, *name_window, *name_queued, *name_popleft, *name_append;

int gather_prepare(void)
{
    static const struct {
        PyObject **name;
        const char *text;
    } names[] = {
        {&name_outbox, "outbox"}, {&name_in_flight, "in_flight"}, {&name_topic_head, "topic_head"},
        {&name_window, "window"}, {&name_queued, "queued"},       {&name_popleft, "popleft"},
        {&name_append, "append"},
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
static int send(PyObject *partition, PyObject *outbox, PyObject *in_flight, PyObject *batch)
{
    PyObject *popped = PyObject_CallMethodObjArgs(outbox, name_popleft, NULL), *added = NULL, *window = NULL;
    int more = -1;
    if (popped != NULL)
        added = PyObject_CallMethodObjArgs(in_flight, name_append, batch, NULL);
    if (added != NULL)
        window = PyObject_GetAttr(partition, name_window);
    if (window != NULL) {
        const Py_ssize_t most = PyLong_AsSsize_t(window), waiting = PyObject_Size(outbox), sent = PyObject_Size(in_flight);
        if (!PyErr_Occurred())
            more = waiting > 0 && sent < most;
    }
    Py_XDECREF(window);
    Py_XDECREF(added);
    Py_XDECREF(popped);
    return more;
}

/* A batch of the partition, if it has one that fits; ``queued`` is false where it has to be offered again. */
static enum Outcome take_one(Request *request, PyObject *partition, PyObject *outbox, PyObject *in_flight)
{
    enum Outcome outcome = FAILED;
    int more = 0;
    PyObject *batch = NULL;
    const Py_ssize_t waiting = PyObject_Size(outbox);
    if (waiting < 0)
        return FAILED;
    if (waiting > 0) {
        if ((batch = PySequence_GetItem(outbox, 0)) == NULL)
            return FAILED;
        PyObject *head = PyTuple_GetItem(batch, 0), *payload = PyTuple_GetItem(batch, 1); /* borrowed */
        const Py_ssize_t head_size = head == NULL || payload == NULL ? -1 : PyBytes_Size(head);
        if (head_size < 0)
            goto done;
        if (head_size == 0) {
            const Py_ssize_t sent = PyObject_Size(in_flight);
            if (sent < 0 || (sent == 0 && PyList_Append(request->holes, partition) < 0))
                goto done;
        } else {
            const Py_ssize_t payload_size = PyObject_Size(payload);
            if (payload_size < 0)
                goto done;
            const Py_ssize_t grown = request->size + head_size + payload_size;
            if (grown > request->max_size && request->size > 0) {
                outcome = FULL;
                goto done;
            }
            request->size = grown;
            if (put(request, partition, head, payload) < 0 || PyList_Append(request->taken, partition) < 0)
                goto done;
            if ((more = send(partition, outbox, in_flight, batch)) < 0)
                goto done;
        }
    }
    if (more ? PyList_Append(request->again, partition) < 0 : PyObject_SetAttr(partition, name_queued, Py_False) < 0)
        goto done;
    outcome = LOOKED_AT;
done:
    Py_XDECREF(batch);
    return outcome;
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
        outcome = in_flight != NULL ? take_one(&request, partition, outbox, in_flight) : FAILED;
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
