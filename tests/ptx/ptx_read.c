/* ptx_read.c: reads the text of a module into kernels. Functions are inlined where they are called. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/ptx/ptx_text.h"

enum { MAX_PARAMETERS = 64, MAX_SHARED_NAMES = 64, MAX_FUNCTIONS = 64 };

typedef struct shared_name {
    ptx_token name;
    int bytes, align;
} shared_name;

typedef struct function_text {
    ptx_token name, result, parameter[MAX_PARAMETERS];
    int bits[MAX_PARAMETERS], bytes[MAX_PARAMETERS], align[MAX_PARAMETERS];
    int n_parameter, line;
    const char *body; /* after its brace */
} function_text;

typedef struct ptx_module_text {
    shared_name shared[MAX_SHARED_NAMES];
    function_text function[MAX_FUNCTIONS];
    int n_shared, n_function;
} ptx_module_text;

/* --- Words ---------------------------------------------------------------------------------------------- */

typedef struct reader {
    const char *at;
    int line;
} reader;

int ptx_is_token(ptx_token token, const char *text)
{
    return strlen(text) == (size_t)token.n && memcmp(token.at, text, (size_t)token.n) == 0;
}

static void skip_blanks(reader *r)
{
    for (;; r->at++) {
        if (r->at[0] == '/' && r->at[1] == '/') r->at += strcspn(r->at, "\n");
        if (r->at[0] == '\n') r->line++;
        if (!*r->at || !strchr(" \t\r\n", *r->at)) return;
    }
}

static int is_of_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("_$%.", c));
}

/* A word, a number with its sign, a text in quotation marks, or a mark; empty at the end. */
static ptx_token read_token(reader *r)
{
    skip_blanks(r);
    ptx_token token = {r->at, 0};
    if (!*r->at) return token;
    const int is_negative = r->at[0] == '-' && r->at[1] >= '0' && r->at[1] <= '9';
    if (*r->at == '"') {
        token.n = (int)strcspn(r->at + 1, "\"\n") + 2;
    } else if (is_of_word(*r->at) || is_negative) {
        token.n = is_negative;
        while (is_of_word(r->at[token.n])) token.n++;
    } else {
        token.n = 1;
    }
    r->at += token.n;
    return token;
}

static void skip_line(reader *r) { r->at += strcspn(r->at, "\n"); }

/* --- A kernel that is built ----------------------------------------------------------------------------- */

void ptx_build_error(ptx_builder *builder, const char *what, ptx_token token)
{
    if (builder->error) return;
    const size_t size = 256 + (size_t)token.n;
    char *const text = ptx_must(malloc(size));
    snprintf(text, size, "line %d: %s: \"%.*s\"", builder->line, what, token.n, token.at);
    free(builder->machine->error);
    builder->machine->error = text;
    builder->error = text;
}

static size_t hash_of(int scope, ptx_token name, int64_t value)
{
    uint64_t h = (uint64_t)(int64_t)scope * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)value;
    for (int k = 0; k < name.n; k++) h = (h ^ (uint8_t)name.at[k]) * UINT64_C(0x100000001B3);
    h *= UINT64_C(0xBF58476D1CE4E5B9);
    return (size_t)(h ^ h >> 31);
}

/* The place of a name in a table, free or taken by it. */
static ptx_symbol *slot_in(ptx_symbol *table, int max, int scope, ptx_token name, int64_t value)
{
    for (size_t k = hash_of(scope, name, value);; k++) {
        ptx_symbol *const s = &table[k % (size_t)max];
        if (!s->bits || (s->scope == scope && s->name.n == name.n && s->value == value &&
                         memcmp(s->name.at, name.at, (size_t)name.n) == 0))
            return s;
    }
}

static ptx_symbol *symbol_slot(ptx_builder *b, int scope, ptx_token name, int64_t value)
{
    if (b->n_symbol * 2 >= b->max_symbol) {
        const int max = b->max_symbol * 2 + 512;
        ptx_symbol *const larger = ptx_must(calloc((size_t)max, sizeof *larger));
        for (int k = 0; k < b->max_symbol; k++) {
            const ptx_symbol *const s = &b->symbol[k];
            if (s->bits) *slot_in(larger, max, s->scope, s->name, s->value) = *s;
        }
        free(b->symbol);
        b->symbol = larger;
        b->max_symbol = max;
    }
    return slot_in(b->symbol, b->max_symbol, scope, name, value);
}

ptx_symbol *ptx_define(ptx_builder *builder, int scope, ptx_token name, ptx_what what, int bits,
                       int32_t place)
{
    ptx_symbol *const s = symbol_slot(builder, scope, name, 0);
    builder->n_symbol += !s->bits;
    *s = (ptx_symbol){scope, name, 0, what, bits, place};
    return s;
}

ptx_symbol *ptx_look_up(ptx_builder *builder, ptx_token name)
{
    for (int k = builder->n_scope - 1; k >= 0; k--) {
        ptx_symbol *const s = symbol_slot(builder, builder->scope[k], name, 0);
        if (s->bits) return s;
    }
    return NULL;
}

int32_t ptx_new_place(ptx_builder *builder, int bits)
{
    ptx_kernel *const kernel = builder->kernel;
    kernel->frame_words += kernel->frame_words % 2; /* 64 bits begin at a multiple of 8 bytes */
    const int32_t place = kernel->frame_words;
    kernel->frame_words += bits == 1 ? 1 : bits == 64 ? 2 * PTX_LANES : PTX_LANES;
    return place;
}

int32_t ptx_constant(ptx_builder *builder, int64_t value, int bits)
{
    const uint64_t mask = bits == 64 ? UINT64_MAX : (1ull << bits) - 1, x = (uint64_t)value & mask;
    ptx_symbol *const s = symbol_slot(builder, -bits, (ptx_token){"", 0}, (int64_t)x);
    if (s->bits) return s->place;
    ptx_kernel *const kernel = builder->kernel;
    const int words = bits == 64 ? 2 * PTX_LANES : PTX_LANES;
    if (kernel->n_constant_word + words > kernel->max_constant_word) {
        kernel->max_constant_word = kernel->max_constant_word * 2 + 1024;
        kernel->constants = ptx_must(
            realloc(kernel->constants, (size_t)kernel->max_constant_word * sizeof *kernel->constants));
    }
    *s = (ptx_symbol){-bits, {"", 0}, (int64_t)x, PTX_CONSTANT, bits, -1 - kernel->n_constant_word};
    builder->n_symbol++;
    uint32_t *const at = kernel->constants + kernel->n_constant_word;
    for (int lane = 0; lane < PTX_LANES; lane++)
        if (bits == 64)
            memcpy(at + 2 * lane, &x, 8);
        else
            at[lane] = bits == 1 && x ? PTX_ALL_LANES : (uint32_t)x;
    kernel->n_constant_word += words;
    return s->place;
}

ptx_instruction *ptx_emit(ptx_builder *builder)
{
    ptx_kernel *const kernel = builder->kernel;
    if (kernel->n_code == kernel->max_code) {
        kernel->max_code = kernel->max_code * 2 + 64;
        kernel->code = ptx_must(realloc(kernel->code, (size_t)kernel->max_code * sizeof *kernel->code));
    }
    ptx_instruction *const i = &kernel->code[kernel->n_code++];
    *i = (ptx_instruction){
        .operation = PTX_NOTHING, .vector = 1, .guard = PTX_NO_PLACE, .line = builder->line};
    for (int k = 0; k < 4; k++) i->to[k] = PTX_NO_PLACE;
    for (int k = 0; k < PTX_MAX_OPERANDS; k++) i->with[k] = PTX_NO_PLACE;
    return i;
}

static void add_jump(ptx_builder *b, int instruction, int scope, ptx_token label)
{
    if (b->n_jump == b->max_jump) {
        b->max_jump = b->max_jump * 2 + 64;
        b->jump = ptx_must(realloc(b->jump, (size_t)b->max_jump * sizeof *b->jump));
    }
    b->jump[b->n_jump++] = (ptx_jump){instruction, scope, label};
}

void ptx_jump_to(ptx_builder *builder, int scope, ptx_token label)
{
    add_jump(builder, builder->kernel->n_code - 1, scope, label);
}

/* A label is kept as a constant of its name, so that it can come after the branches to it. */
static void put_label(ptx_builder *b, int scope, ptx_token label)
{
    add_jump(b, -1 - b->kernel->n_code, scope, label);
}

static void resolve_jumps(ptx_builder *b)
{
    ptx_symbol *const table = b->symbol;
    for (int k = 0; k < b->max_symbol; k++) table[k].bits = 0;
    b->n_symbol = 0;
    for (int j = 0; j < b->n_jump; j++)
        if (b->jump[j].instruction < 0)
            ptx_define(b, b->jump[j].scope, b->jump[j].label, PTX_CONSTANT, 32, -1 - b->jump[j].instruction);
    for (int j = 0; j < b->n_jump; j++) {
        if (b->jump[j].instruction < 0) continue;
        const ptx_symbol *const s = symbol_slot(b, b->jump[j].scope, b->jump[j].label, 0);
        if (!s->bits) ptx_build_error(b, "a label that is nowhere", b->jump[j].label);
        b->kernel->code[b->jump[j].instruction].target = s->place;
    }
}

/* --- Names ---------------------------------------------------------------------------------------------- */

static int register_bits_of(ptx_type type) { return type.bits == 8 ? 16 : type.bits; }

/* ".reg .b32 %r<53>" or ".reg .pred p, q" */
static void define_registers(ptx_builder *b, const ptx_statement *s)
{
    ptx_type type = {0, 0};
    const ptx_token word = s->n > 1 ? (ptx_token){s->token[1].at + 1, s->token[1].n - 1} : s->token[0];
    if (!ptx_type_of(word, &type)) ptx_build_error(b, "registers of another type", word);
    const int bits = register_bits_of(type), scope = b->scope[b->n_scope - 1];
    for (int k = 2; k < s->n; k++) {
        if (ptx_is_token(s->token[k], ",")) continue;
        if (k + 1 == s->n || !ptx_is_token(s->token[k + 1], "<")) {
            ptx_define(b, scope, s->token[k], PTX_REGISTER, bits, ptx_new_place(b, bits));
            continue;
        }
        /* Names that no text holds: their numbers are made once, and live as long as the machine. */
        const int n = (int)ptx_number(s->token[k + 2]), prefix = s->token[k].n;
        const size_t size = (size_t)prefix + 12;
        char *const names = ptx_must(malloc((size_t)n * size + 1));
        b->machine->text =
            ptx_must(realloc(b->machine->text, (size_t)(b->machine->n_text + 1) * sizeof *b->machine->text));
        b->machine->text[b->machine->n_text++] = names;
        for (int r = 0; r < n; r++) {
            char *const name = names + (size_t)r * size;
            const int length = snprintf(name, size, "%.*s%d", prefix, s->token[k].at, r);
            ptx_define(b, scope, (ptx_token){name, length}, PTX_REGISTER, bits, ptx_new_place(b, bits));
        }
        k += 3;
    }
}

/* ".align 4 .b8 name[12]", ".u32 name" from a word on */
static shared_name read_shared(const ptx_statement *s, int from)
{
    shared_name own = {.align = 1};
    int element = 1;
    for (int k = from; k < s->n; k++) {
        ptx_type type;
        const ptx_token word = {s->token[k].at + 1, s->token[k].n - 1};
        if (ptx_is_token(s->token[k], ".align")) {
            own.align = (int)ptx_number(s->token[++k]);
        } else if (*s->token[k].at == '.' && ptx_type_of(word, &type)) {
            element = own.bytes = type.bits / 8;
        } else if (ptx_is_token(s->token[k], "[")) {
            own.bytes = (int)ptx_number(s->token[++k]) * element;
        } else if (!ptx_is_token(s->token[k], "]")) {
            own.name = s->token[k];
        }
    }
    return own;
}

static void place_shared(ptx_builder *b, const shared_name *own)
{
    ptx_kernel *const kernel = b->kernel;
    kernel->shared_bytes = (kernel->shared_bytes + own->align - 1) / own->align * own->align;
    ptx_define(b, b->scope[0], own->name, PTX_SHARED_NAME, 32, kernel->shared_bytes);
    kernel->shared_bytes += own->bytes;
}

/* Shared memory of the module is of the kernels that name it. */
static void place_named_shared(ptx_builder *b, const ptx_statement *s)
{
    for (int t = 0; t < s->n; t++)
        for (int k = 0; k < b->module->n_shared; k++) {
            const shared_name *const own = &b->module->shared[k];
            const int is_it = own->name.n == s->token[t].n &&
                              memcmp(own->name.at, s->token[t].at, (size_t)own->name.n) == 0;
            if (is_it && !ptx_look_up(b, own->name)) place_shared(b, own);
        }
}

/* --- Bodies --------------------------------------------------------------------------------------------- */

static void open_scope(ptx_builder *b)
{
    if (b->n_scope == PTX_MAX_SCOPES)
        ptx_build_error(b, "braces in too many braces", (ptx_token){"{", 1});
    else
        b->scope[b->n_scope++] = ++b->all_scopes;
}

static void read_statement(ptx_builder *b, const ptx_statement *s)
{
    const ptx_token first = s->token[0];
    if (ptx_is_token(first, ".pragma")) return;
    place_named_shared(b, s);
    if (ptx_is_token(first, ".reg")) {
        define_registers(b, s);
    } else if (ptx_is_token(first, ".shared")) {
        const shared_name own = read_shared(s, 1);
        place_shared(b, &own);
    } else if (ptx_is_token(first, ".param")) {
        ptx_type type = {32, 'b'};
        const ptx_token word = {s->token[1].at + 1, s->token[1].n - 1};
        if (s->n != 3 || !ptx_type_of(word, &type)) ptx_build_error(b, "another parameter of a call", word);
        const int bits = register_bits_of(type);
        ptx_define(b, b->scope[b->n_scope - 1], s->token[2], PTX_REGISTER, bits, ptx_new_place(b, bits));
    } else if (*first.at == '.') {
        ptx_build_error(b, "a directive that is not known", first);
    } else {
        ptx_decode(b, s);
    }
}

/* Up to the brace that ends it. */
static void read_body(ptx_builder *b, reader *r)
{
    const int outer = b->n_scope;
    ptx_statement s = {.n = 0};
    open_scope(b);
    int depth = 0; /* of braces within a statement */
    while (!b->error && b->n_scope > outer) {
        const ptx_token token = read_token(r);
        if (s.n == 0) b->line = r->line;
        if (!token.n) {
            ptx_build_error(b, "the text ends in a body", token);
        } else if (ptx_is_token(token, "{") && s.n == 0) {
            open_scope(b);
        } else if (ptx_is_token(token, "}") && depth == 0) {
            b->n_scope--;
        } else if (ptx_is_token(token, ":") && s.n == 1) {
            put_label(b, b->body_scope, s.token[0]);
            s.n = 0;
        } else if (ptx_is_token(token, ";")) {
            if (s.n) read_statement(b, &s);
            s.n = 0;
        } else if (s.n == PTX_MAX_TOKENS) {
            ptx_build_error(b, "a long statement", token);
        } else {
            depth += ptx_is_token(token, "{") - ptx_is_token(token, "}");
            s.token[s.n++] = token;
        }
    }
}

static const function_text *find_function(const ptx_module_text *module, ptx_token name)
{
    for (int k = 0; k < module->n_function; k++)
        if (module->function[k].name.n == name.n &&
            memcmp(module->function[k].name.at, name.at, (size_t)name.n) == 0)
            return &module->function[k];
    return NULL;
}

/* call.uni (result), name, (argument, …): the function's body, in which its parameters are the registers of
 * the caller's. */
void ptx_call(ptx_builder *builder, const ptx_statement *s, int at)
{
    const int has_result = ptx_is_token(s->token[at], "(");
    const ptx_token result = has_result ? s->token[at + 1] : s->token[at];
    at += has_result ? 4 : 0;
    const function_text *const function = find_function(builder->module, s->token[at]);
    if (!function) {
        ptx_build_error(builder, "a function that is not known", s->token[at]);
        return;
    }
    const int outer = builder->n_scope, body = builder->body_scope, back = builder->return_to;
    open_scope(builder);
    const int own = builder->scope[builder->n_scope - 1];
    for (int k = 0; k < function->n_parameter; k++) {
        const int token = at + 3 + 2 * k;
        const ptx_symbol *const given = token < s->n ? ptx_look_up(builder, s->token[token]) : NULL;
        if (!given) {
            ptx_build_error(builder, "an argument that is not known", s->token[s->n - 1]);
            return;
        }
        ptx_define(builder, own, function->parameter[k], PTX_REGISTER, given->bits, given->place);
    }
    const ptx_symbol *const to = has_result ? ptx_look_up(builder, result) : NULL;
    if (to) ptx_define(builder, own, function->result, PTX_REGISTER, to->bits, to->place);
    builder->body_scope = builder->return_to = own;
    reader r = {function->body, function->line};
    const int line = builder->line;
    read_body(builder, &r);
    put_label(builder, own, (ptx_token){"$return", 7});
    builder->line = line;
    builder->body_scope = body;
    builder->return_to = back;
    builder->n_scope = outer;
}

/* --- Modules -------------------------------------------------------------------------------------------- */

/* "( .param .u64 a, .param .align 8 .b8 b[24] )" after the first mark. */
static void read_parameters(reader *r, function_text *f)
{
    ptx_statement s = {.n = 0};
    for (;;) {
        const ptx_token token = read_token(r);
        const int is_end = !token.n || ptx_is_token(token, ")");
        if (!is_end && !ptx_is_token(token, ",")) {
            if (s.n < PTX_MAX_TOKENS && !ptx_is_token(token, ".param")) s.token[s.n++] = token;
            continue;
        }
        if (s.n && f->n_parameter < MAX_PARAMETERS) {
            const shared_name own = read_shared(&s, 0);
            f->parameter[f->n_parameter] = own.name;
            f->bytes[f->n_parameter] = own.bytes;
            f->align[f->n_parameter++] = own.align > 1 || own.bytes > 8 ? own.align : own.bytes;
        }
        s.n = 0;
        if (is_end) return;
    }
}

static void place_parameters(ptx_builder *b, const function_text *f)
{
    ptx_kernel *const kernel = b->kernel;
    kernel->parameter = ptx_must(calloc((size_t)f->n_parameter + 1, sizeof *kernel->parameter));
    kernel->n_parameter = f->n_parameter;
    for (int k = 0; k < f->n_parameter; k++) {
        const int at = (kernel->parameter_bytes + f->align[k] - 1) / f->align[k] * f->align[k];
        kernel->parameter[k] = (ptx_parameter){at, f->bytes[k]};
        kernel->parameter_bytes = at + f->bytes[k];
        ptx_define(b, b->scope[0], f->parameter[k], PTX_PARAM_NAME, 64, at);
    }
}

/* mul and add whose only use is one another may be one fma: nvcc leaves that to ptxas. */
static void contract(ptx_builder *b);

static void build_kernel(ptx_machine *machine, const ptx_module_text *module, reader *r,
                         const function_text *f, unsigned max_threads)
{
    if (machine->n_kernel == machine->max_kernel) {
        machine->max_kernel = machine->max_kernel * 2 + 64;
        machine->kernel =
            ptx_must(realloc(machine->kernel, (size_t)machine->max_kernel * sizeof *machine->kernel));
    }
    ptx_kernel *const kernel = &machine->kernel[machine->n_kernel++];
    *kernel =
        (ptx_kernel){.name = ptx_must(strndup(f->name.at, (size_t)f->name.n)), .max_threads = max_threads};
    ptx_builder b = {.machine = machine, .kernel = kernel, .module = module, .return_to = -1};
    open_scope(&b);
    b.body_scope = b.scope[0];
    place_parameters(&b, f);
    read_body(&b, r);
    if (!b.error) {
        ptx_emit(&b)->operation = PTX_RETURN;
        resolve_jumps(&b);
    }
    if (!b.error && machine->options.contracts) contract(&b);
    free(b.symbol);
    free(b.jump);
}

/* After ".entry" or ".func". */
static void read_function(ptx_machine *machine, ptx_module_text *module, reader *r, int is_kernel)
{
    function_text f = {.n_parameter = 0};
    ptx_token token = read_token(r);
    if (ptx_is_token(token, "(")) { /* what it returns */
        read_parameters(r, &f);
        f.result = f.parameter[0];
        f.n_parameter = 0;
        token = read_token(r);
    }
    f.name = token;
    unsigned max_threads = 1024;
    for (token = read_token(r); token.n && !ptx_is_token(token, "{") && !ptx_is_token(token, ";");
         token = read_token(r)) {
        if (ptx_is_token(token, "(")) read_parameters(r, &f);
        if (ptx_is_token(token, ".maxntid")) max_threads = (unsigned)ptx_number(read_token(r));
    }
    if (!ptx_is_token(token, "{")) return; /* a declaration */
    f.body = r->at;
    f.line = r->line;
    if (is_kernel) {
        build_kernel(machine, module, r, &f, max_threads);
        return;
    }
    if (module->n_function < MAX_FUNCTIONS) module->function[module->n_function++] = f;
    for (int depth = 1; depth > 0 && token.n;) {
        token = read_token(r);
        depth += ptx_is_token(token, "{") - ptx_is_token(token, "}");
    }
}

static void read_module_shared(ptx_module_text *module, reader *r)
{
    ptx_statement s = {.n = 0};
    for (ptx_token t = read_token(r); t.n && !ptx_is_token(t, ";"); t = read_token(r))
        if (s.n < PTX_MAX_TOKENS) s.token[s.n++] = t;
    if (module->n_shared < MAX_SHARED_NAMES) module->shared[module->n_shared++] = read_shared(&s, 0);
}

const char *ptx_load(ptx_machine *machine, const char *module_name, const char *text)
{
    char *const own = ptx_must(strdup(text));
    machine->text = ptx_must(realloc(machine->text, (size_t)(machine->n_text + 1) * sizeof *machine->text));
    machine->text[machine->n_text++] = own;
    ptx_module_text *const module = ptx_must(calloc(1, sizeof *module));
    reader r = {own, 1};
    free(machine->error);
    machine->error = NULL;
    for (ptx_token t = read_token(&r); t.n && !machine->error; t = read_token(&r)) {
        if (ptx_is_token(t, ".version") || ptx_is_token(t, ".target") || ptx_is_token(t, ".address_size")) {
            skip_line(&r);
        } else if (ptx_is_token(t, ".shared")) {
            read_module_shared(module, &r);
        } else if (ptx_is_token(t, ".entry") || ptx_is_token(t, ".func")) {
            read_function(machine, module, &r, ptx_is_token(t, ".entry"));
        } else if (!ptx_is_token(t, ".visible") && !ptx_is_token(t, ".weak") && !ptx_is_token(t, ".extern")) {
            ptx_builder b = {.machine = machine, .line = r.line};
            ptx_build_error(&b, "not known outside of a body", t);
        }
    }
    free(module);
    if (!machine->error) return NULL;
    const size_t size = strlen(machine->error) + strlen(module_name) + 3;
    char *const whole = ptx_must(malloc(size));
    snprintf(whole, size, "%s: %s", module_name, machine->error);
    free(machine->error);
    machine->error = whole;
    return whole;
}

/* --- Contraction ---------------------------------------------------------------------------------------- */

static int uses_of(const ptx_kernel *kernel, int32_t place, int is_written)
{
    int n = 0;
    for (int c = 0; c < kernel->n_code; c++) {
        const ptx_instruction *const i = &kernel->code[c];
        for (int k = 0; is_written && k < 4; k++) n += i->to[k] == place;
        for (int k = 0; !is_written && k < PTX_MAX_OPERANDS; k++) n += i->with[k] == place;
    }
    return n;
}

/* Whether nothing jumps to between two instructions, or away from there. */
static int is_straight(const ptx_kernel *kernel, int first, int last)
{
    for (int c = 0; c < kernel->n_code; c++) {
        const ptx_instruction *const i = &kernel->code[c];
        if (i->operation != PTX_BRANCH) continue;
        if ((c >= first && c <= last) || (i->target > first && i->target <= last)) return 0;
    }
    return 1;
}

/* The product before `at` that is used by it alone, or -1. */
static int product_of(const ptx_kernel *kernel, int at, int32_t place)
{
    enum { FAR = 200 };
    if (place < 0 || uses_of(kernel, place, 0) != 1 || uses_of(kernel, place, 1) != 1) return -1;
    for (int c = at - 1; c >= 0 && c > at - FAR; c--) {
        const ptx_instruction *const i = &kernel->code[c];
        if (i->to[0] != place) continue;
        const int is_plain =
            i->operation == PTX_mul_f && i->guard == PTX_NO_PLACE && is_straight(kernel, c, at);
        return is_plain && uses_of(kernel, i->with[0], 1) <= 1 && uses_of(kernel, i->with[1], 1) <= 1 ? c
                                                                                                      : -1;
    }
    return -1;
}

static void contract(ptx_builder *b)
{
    ptx_kernel *const kernel = b->kernel;
    for (int c = 0; c < kernel->n_code; c++) {
        ptx_instruction *const sum = &kernel->code[c];
        if (sum->operation != PTX_add_f && sum->operation != PTX_sub_f) continue;
        for (int k = 0; k < 2; k++) {
            const int at = product_of(kernel, c, sum->with[k]);
            if (at < 0) continue;
            ptx_instruction *const product = &kernel->code[at];
            const ptx_operation with_sub = k == 0 ? PTX_fma_less : PTX_fma_from;
            sum->operation = (uint16_t)(sum->operation == PTX_add_f ? PTX_fma : with_sub);
            sum->with[2] = sum->with[1 - k];
            sum->with[0] = product->with[0];
            sum->with[1] = product->with[1];
            product->operation = PTX_NOTHING;
            product->to[0] = PTX_NO_PLACE;
            break;
        }
    }
}
