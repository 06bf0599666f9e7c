/* ptx_text.h: between ptx_read.c, which reads modules, functions and their names, and ptx_decode.c, which
 * reads single instructions. */
#pragma once

#include "tests/ptx/ptx_machine.h"

enum { PTX_MAX_TOKENS = 96, PTX_MAX_SCOPES = 16 };

typedef struct ptx_token {
    const char *at;
    int n;
} ptx_token;

/* One statement: its words and marks, without the semicolon. */
typedef struct ptx_statement {
    ptx_token token[PTX_MAX_TOKENS];
    int n, line;
} ptx_statement;

typedef enum ptx_what { PTX_REGISTER, PTX_SHARED_NAME, PTX_PARAM_NAME, PTX_CONSTANT } ptx_what;
typedef struct ptx_symbol {
    int scope; /* which braces it is in; a constant's are its bits, negated */
    ptx_token name;
    int64_t value; /* of a constant, which has no name */
    ptx_what what;
    int bits;      /* of a register: 1, 16, 32 or 64 */
    int32_t place; /* of a register or a constant; an offset of shared memory or parameters */
} ptx_symbol;

typedef struct ptx_jump {
    int instruction, scope;
    ptx_token label;
} ptx_jump;

/* What one kernel is built with. */
typedef struct ptx_builder {
    ptx_machine *machine;
    ptx_kernel *kernel;
    const struct ptx_module_text *module;
    ptx_symbol *symbol; /* a hash table */
    int n_symbol, max_symbol;
    int scope[PTX_MAX_SCOPES], n_scope, all_scopes;
    int body_scope; /* of the function's labels */
    int return_to;  /* the scope whose label "$return" ends an inlined function; -1 in a kernel */
    ptx_jump *jump; /* branches, and labels, which have instruction −1 − where */
    int n_jump, max_jump;
    int line;
    const char *error; /* the first one */
} ptx_builder;

/* ptx_read.c */
int ptx_is_token(ptx_token token, const char *text);
void ptx_build_error(ptx_builder *builder, const char *what, ptx_token token);
ptx_symbol *ptx_look_up(ptx_builder *builder, ptx_token name); /* from the innermost scope; NULL: none */
ptx_symbol *ptx_define(ptx_builder *builder, int scope, ptx_token name, ptx_what what, int bits,
                       int32_t place);
int32_t ptx_new_place(ptx_builder *builder, int bits); /* in the frame */
int32_t ptx_constant(ptx_builder *builder, int64_t value, int bits);
ptx_instruction *ptx_emit(ptx_builder *builder);
void ptx_jump_to(ptx_builder *builder, int scope, ptx_token label); /* from the last instruction */
void ptx_call(ptx_builder *builder, const ptx_statement *statement, int first);

/* ptx_decode.c */
int64_t ptx_number(ptx_token token);
void ptx_decode(ptx_builder *builder, const ptx_statement *statement);
int ptx_type_of(ptx_token word, ptx_type *type); /* "u32", "f32", "pred", …; whether it is one */
