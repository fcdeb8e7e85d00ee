/* fault.h - what stopped a render: the class that the error has in Jinja2, or one of our bounds. */
#ifndef INFERD_JINJA_FAULT_H
#define INFERD_JINJA_FAULT_H

enum jinja_fault {
    JINJA_FAULT_NONE,
    JINJA_FAULT_TEMPLATE, /* the template's own raise_exception */
    JINJA_FAULT_TYPE,
    JINJA_FAULT_UNDEFINED,
    JINJA_FAULT_SECURITY, /* hidden by the immutable sandbox */
    JINJA_FAULT_RUNTIME,
    JINJA_FAULT_VALUE,
    JINJA_FAULT_KEY,
    JINJA_FAULT_INDEX,
    JINJA_FAULT_ZERO,
    JINJA_FAULT_OVERFLOW,
    JINJA_FAULT_LIMIT /* steps, memory, nesting, length */
};
const char *jinja_fault_name(enum jinja_fault fault); /* "TemplateError", "TypeError", ... */

struct jinja_failure {
    enum jinja_fault fault;
    int line;        /* of the template; 0: none */
    char text[4096]; /* without the line; a template's own message is cut to this size */
};

#endif
