/* ptx_decode.c: one instruction of PTX, from its text. What is not known is refused: an option that was
 * overlooked would be a kernel that is tested as another one. */
#include <stdlib.h>

#include "tests/ptx/ptx_text.h"

/* --- Words of an opcode --------------------------------------------------------------------------------- */

int ptx_type_of(ptx_token word, ptx_type *type)
{
    static const struct {
        const char *name;
        ptx_type type;
    } types[] = {{"b8", {8, 'b'}},   {"b16", {16, 'b'}}, {"b32", {32, 'b'}}, {"b64", {64, 'b'}},
                 {"u8", {8, 'u'}},   {"u16", {16, 'u'}}, {"u32", {32, 'u'}}, {"u64", {64, 'u'}},
                 {"s8", {8, 's'}},   {"s16", {16, 's'}}, {"s32", {32, 's'}}, {"s64", {64, 's'}},
                 {"f32", {32, 'f'}}, {"pred", {1, 'p'}}};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if (ptx_is_token(word, types[k].name)) {
            *type = types[k].type;
            return 1;
        }
    return 0;
}

enum { MAX_WORDS = 12 };
typedef struct opcode {
    ptx_token whole, word[MAX_WORDS];
    int n;
} opcode;

static opcode split_opcode(ptx_token whole)
{
    opcode o = {.whole = whole};
    const char *begin = whole.at;
    for (const char *at = whole.at; at <= whole.at + whole.n && o.n < MAX_WORDS; at++)
        if (at == whole.at + whole.n || *at == '.') {
            o.word[o.n++] = (ptx_token){begin, (int)(at - begin)};
            begin = at + 1;
        }
    return o;
}

/* Takes a word out of an opcode; whether it was there. */
static int take_word(opcode *o, const char *text)
{
    for (int k = 1; k < o->n; k++)
        if (ptx_is_token(o->word[k], text)) {
            memmove(&o->word[k], &o->word[k + 1], (size_t)(o->n - k - 1) * sizeof *o->word);
            o->n--;
            return 1;
        }
    return 0;
}

static ptx_type take_type(ptx_builder *b, opcode *o)
{
    ptx_type type = {0, 0};
    for (int k = o->n - 1; k > 0; k--)
        if (ptx_type_of(o->word[k], &type)) {
            memmove(&o->word[k], &o->word[k + 1], (size_t)(o->n - k - 1) * sizeof *o->word);
            o->n--;
            return type;
        }
    ptx_build_error(b, "no type that is known", o->whole);
    return (ptx_type){32, 'b'};
}

/* All words must have been taken. */
static void end_words(ptx_builder *b, const opcode *o)
{
    if (o->n > 1) ptx_build_error(b, "an option that is not known", o->whole);
}

/* --- Operands ------------------------------------------------------------------------------------------- */

typedef struct operands {
    ptx_builder *builder;
    const ptx_statement *statement;
    int at;
} operands;

static const ptx_token no_token = {"", 0};

static ptx_token next_token(operands *o)
{
    return o->at < o->statement->n ? o->statement->token[o->at++] : no_token;
}

static ptx_token peek(const operands *o)
{
    return o->at < o->statement->n ? o->statement->token[o->at] : no_token;
}

static int accept_mark(operands *o, const char *mark)
{
    if (!ptx_is_token(peek(o), mark)) return 0;
    o->at++;
    return 1;
}

static void expect(operands *o, const char *mark)
{
    const ptx_token token = peek(o);
    if (!accept_mark(o, mark)) ptx_build_error(o->builder, "another mark is expected", token);
}

static int is_number(ptx_token token)
{
    const char first = token.n > 1 && *token.at == '-' ? token.at[1] : *token.at;
    return token.n > 0 && first >= '0' && first <= '9';
}

int64_t ptx_number(ptx_token token)
{
    const int is_float = token.n > 2 && token.at[0] == '0' && (token.at[1] == 'f' || token.at[1] == 'F');
    if (is_float) return (int64_t)strtoull(token.at + 2, NULL, 16);
    return *token.at == '-' ? -(int64_t)strtoull(token.at + 1, NULL, 0)
                            : (int64_t)strtoull(token.at, NULL, 0);
}

/* A register of so many bits, a number, or the address of a name. */
static int32_t operand(operands *o, int bits)
{
    const ptx_token token = next_token(o);
    if (is_number(token)) return ptx_constant(o->builder, ptx_number(token), bits);
    const ptx_symbol *const symbol = ptx_look_up(o->builder, token);
    if (!symbol) {
        ptx_build_error(o->builder, "a name that is not known", token);
        return 0;
    }
    if (symbol->what != PTX_REGISTER) return ptx_constant(o->builder, symbol->place, bits);
    if (symbol->bits != bits) ptx_build_error(o->builder, "a register of another width", token);
    return symbol->place;
}

static int32_t operand_after_comma(operands *o, int bits)
{
    expect(o, ",");
    return operand(o, bits);
}

/* One operand, or several in braces; how many. */
static int operand_list(operands *o, int32_t *place, int max, int bits)
{
    int n = 0;
    if (!accept_mark(o, "{")) {
        place[0] = operand(o, bits);
        return 1;
    }
    do {
        if (n == max) break;
        place[n++] = operand(o, bits);
    } while (accept_mark(o, ","));
    expect(o, "}");
    return n;
}

/* [register + offset], [name + offset] or [name]; the base as an operand of so many bits. */
static int32_t address(operands *o, int bits, int64_t *offset)
{
    expect(o, "[");
    const int32_t base = operand(o, bits);
    while (accept_mark(o, "+")) *offset += ptx_number(next_token(o));
    if (is_number(peek(o))) *offset += ptx_number(next_token(o)); /* -4 is one token */
    expect(o, "]");
    return base;
}

/* --- Instructions of lanes ------------------------------------------------------------------------------ */

typedef struct lane_form {
    const char *spellings;
    ptx_operation operation;
    char kind[4]; /* of the result and three operands */
} lane_form;

static const lane_form lane_forms[] = {
#define LANES(id, spellings, to, a, b, c, value) {spellings, PTX_##id, {#to[0], #a[0], #b[0], #c[0]}},
#include "tests/ptx/instructions.def"
#undef LANES
};

static int bits_of_kind(char kind) { return kind == 'h' ? 16 : kind == 'w' ? 32 : kind == 'l' ? 64 : 1; }

static int is_spelling(const char *spellings, ptx_token whole)
{
    for (const char *at = spellings; *at;) {
        const size_t n = strcspn(at, " ");
        if (n == (size_t)whole.n && memcmp(at, whole.at, n) == 0) return 1;
        at += n + (at[n] == ' ');
    }
    return 0;
}

static const lane_form *find_lane_form(ptx_token whole)
{
    for (size_t k = 0; k < sizeof lane_forms / sizeof *lane_forms; k++)
        if (is_spelling(lane_forms[k].spellings, whole)) return &lane_forms[k];
    return NULL;
}

static void decode_lanes(operands *o, ptx_instruction *i, const lane_form *form)
{
    i->operation = (uint16_t)form->operation;
    i->to[0] = operand(o, bits_of_kind(form->kind[0]));
    for (int k = 0; k < 3; k++)
        if (form->kind[1 + k] != 'n') i->with[k] = operand_after_comma(o, bits_of_kind(form->kind[1 + k]));
}

/* --- The others ----------------------------------------------------------------------------------------- */

static void decode_setp(operands *o, ptx_instruction *i, opcode *words)
{
    static const struct {
        const char *name;
        uint8_t accepts;
    } comparisons[] = {{"eq", 2},  {"ne", 5},   {"lt", 1},   {"le", 3},   {"gt", 4},   {"ge", 6},
                       {"lo", 1},  {"ls", 3},   {"hi", 4},   {"hs", 6},   {"equ", 10}, {"neu", 13},
                       {"ltu", 9}, {"leu", 11}, {"gtu", 12}, {"geu", 14}, {"num", 7},  {"nan", 8}};
    i->operation = PTX_SETP;
    i->type = take_type(o->builder, words);
    for (size_t k = 0; k < sizeof comparisons / sizeof *comparisons; k++)
        if (take_word(words, comparisons[k].name)) i->kind = comparisons[k].accepts;
    i->combine = take_word(words, "and")   ? 'a'
                 : take_word(words, "or")  ? 'o'
                 : take_word(words, "xor") ? 'x'
                                           : 0;
    if (!i->kind) ptx_build_error(o->builder, "a comparison that is not known", words->whole);
    i->to[0] = operand(o, 1);
    i->with[0] = operand_after_comma(o, i->type.bits);
    i->with[1] = operand_after_comma(o, i->type.bits);
    if (i->combine) i->with[2] = operand_after_comma(o, 1);
}

static int is_special(ptx_token token, uint8_t *kind)
{
    static const char *const names[] = {[PTX_TID] = "%tid.x",
                                        [PTX_CTAID] = "%ctaid.x",
                                        [PTX_NTID] = "%ntid.x",
                                        [PTX_NCTAID] = "%nctaid.x",
                                        [PTX_LANEID] = "%laneid"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (ptx_is_token(token, names[k])) {
            *kind = (uint8_t)k;
            return 1;
        }
    return 0;
}

/* mov with more than two registers, or of a special one; else it is one of the lanes. */
static int decode_mov(operands *o, ptx_instruction *i, opcode *words)
{
    opcode left = *words;
    const ptx_type type = take_type(o->builder, &left);
    i->type = type;
    if (ptx_is_token(peek(o), "{")) {
        i->operation = PTX_SPLIT;
        if (operand_list(o, i->to, 2, type.bits / 2) != 2)
            ptx_build_error(o->builder, "not two parts", words->whole);
        i->with[0] = operand_after_comma(o, type.bits);
        *words = left;
        return 1;
    }
    const ptx_token second = o->at + 2 < o->statement->n ? o->statement->token[o->at + 2] : no_token;
    if (ptx_is_token(second, "{")) {
        i->operation = PTX_JOIN;
        i->to[0] = operand(o, type.bits);
        expect(o, ",");
        if (operand_list(o, i->with, 2, type.bits / 2) != 2)
            ptx_build_error(o->builder, "not two parts", words->whole);
        *words = left;
        return 1;
    }
    if (!is_special(second, &i->kind)) return 0;
    i->operation = PTX_SPECIAL;
    i->to[0] = operand(o, type.bits);
    o->at += 2;
    *words = left;
    return 1;
}

static int vector_of(opcode *words) { return take_word(words, "v4") ? 4 : take_word(words, "v2") ? 2 : 1; }

/* Registers of a load or store: of its width, or of 16 or 32 bits for narrower elements. */
static int register_bits(operands *o, ptx_type type)
{
    const int at = o->at;
    accept_mark(o, "{");
    const ptx_symbol *const symbol = is_number(peek(o)) ? NULL : ptx_look_up(o->builder, peek(o));
    o->at = at;
    if (symbol && symbol->what == PTX_REGISTER && symbol->bits >= type.bits && symbol->bits > 1)
        return symbol->bits;
    return type.bits < 16 ? 16 : type.bits;
}

/* A parameter of a kernel lies at a place; one of a function is a register. */
static void decode_param(operands *o, ptx_instruction *i, int stores)
{
    const ptx_token name = o->statement->token[o->at + 1];
    const ptx_symbol *const symbol = ptx_look_up(o->builder, name);
    const int is_register = symbol && symbol->what == PTX_REGISTER;
    if (is_register && *name.at != '%') {
        i->operation = symbol->bits == 64 ? PTX_mov_l : PTX_mov_w;
        const int32_t place = address(o, symbol->bits, &i->offset);
        if (i->offset || i->vector > 1) ptx_build_error(o->builder, "a part of a parameter", name);
        if (stores) {
            i->to[0] = place;
            i->with[0] = operand_after_comma(o, symbol->bits);
        } else {
            i->with[0] = place;
        }
        return;
    }
    if (stores || !symbol) ptx_build_error(o->builder, "a parameter that cannot be stored", name);
    if (!stores && symbol && !is_register) {
        i->operation = PTX_LOAD_PARAM;
        (void)address(o, 64, &i->offset);
        i->offset += symbol->place;
        return;
    }
    i->operation = PTX_LOAD_PARAM_AT;
    i->with[0] = address(o, 64, &i->offset);
}

static void decode_load(operands *o, ptx_instruction *i, opcode *words)
{
    const int is_param = take_word(words, "param");
    i->is_shared = (uint8_t)take_word(words, "shared");
    if (!is_param && !i->is_shared && !take_word(words, "global"))
        ptx_build_error(o->builder, "an address space that is not known", words->whole);
    i->is_read_only = (uint8_t)take_word(words, "nc");
    i->vector = (uint8_t)vector_of(words);
    i->type = take_type(o->builder, words);
    const int bits = register_bits(o, i->type);
    i->register_bits = (uint8_t)bits;
    i->operation = PTX_LOAD;
    if (operand_list(o, i->to, 4, bits) != i->vector)
        ptx_build_error(o->builder, "another number of parts", words->whole);
    expect(o, ",");
    if (is_param)
        decode_param(o, i, 0);
    else
        i->with[0] = address(o, i->is_shared ? 32 : 64, &i->offset);
}

static void decode_store(operands *o, ptx_instruction *i, opcode *words)
{
    const int is_param = take_word(words, "param");
    i->is_shared = (uint8_t)take_word(words, "shared");
    if (!is_param && !i->is_shared && !take_word(words, "global"))
        ptx_build_error(o->builder, "an address space that is not known", words->whole);
    take_word(words, "wb"); /* how it is cached */
    i->vector = (uint8_t)vector_of(words);
    i->type = take_type(o->builder, words);
    i->operation = PTX_STORE;
    if (is_param) {
        decode_param(o, i, 1);
        return;
    }
    i->with[0] = address(o, i->is_shared ? 32 : 64, &i->offset);
    expect(o, ",");
    const int bits = register_bits(o, i->type);
    i->register_bits = (uint8_t)bits;
    if (operand_list(o, i->with + 1, 4, bits) != i->vector)
        ptx_build_error(o->builder, "another number of parts", words->whole);
}

static void decode_atomic(operands *o, ptx_instruction *i, opcode *words)
{
    const int has_result = ptx_is_token(words->word[0], "atom");
    i->operation = PTX_ATOMIC;
    i->is_shared = (uint8_t)take_word(words, "shared");
    if (!i->is_shared && !take_word(words, "global"))
        ptx_build_error(o->builder, "an address space", words->whole);
    i->type = take_type(o->builder, words);
    i->vector = 1;
    i->kind = take_word(words, "add")    ? PTX_ATOM_ADD
              : take_word(words, "max")  ? PTX_ATOM_MAX
              : take_word(words, "min")  ? PTX_ATOM_MIN
              : take_word(words, "or")   ? PTX_ATOM_OR
              : take_word(words, "exch") ? PTX_ATOM_EXCH
                                         : 255;
    if (i->kind == 255 || i->type.bits != 32 || i->type.class == 's' || i->type.class == 'f')
        ptx_build_error(o->builder, "an atomic that is not known", words->whole);
    if (has_result) {
        i->to[0] = operand(o, 32);
        expect(o, ",");
    }
    i->with[0] = address(o, i->is_shared ? 32 : 64, &i->offset);
    i->with[1] = operand_after_comma(o, 32);
}

static void decode_shuffle(operands *o, ptx_instruction *i, opcode *words)
{
    i->operation = PTX_SHUFFLE;
    if (!take_word(words, "sync")) ptx_build_error(o->builder, "a shuffle without sync", words->whole);
    i->type = take_type(o->builder, words);
    i->kind = take_word(words, "bfly")   ? PTX_BFLY
              : take_word(words, "up")   ? PTX_UP
              : take_word(words, "down") ? PTX_DOWN
                                         : PTX_IDX;
    if (i->kind == PTX_IDX) take_word(words, "idx");
    i->to[0] = operand(o, 32);
    if (accept_mark(o, "|")) i->to[1] = operand(o, 1);
    for (int k = 0; k < 4; k++) i->with[k] = operand_after_comma(o, 32);
}

static void decode_ldmatrix(operands *o, ptx_instruction *i, opcode *words)
{
    static const char *const needed[] = {"sync", "aligned", "m8n8", "shared"};
    i->operation = PTX_LDMATRIX;
    for (size_t k = 0; k < sizeof needed / sizeof *needed; k++)
        if (!take_word(words, needed[k])) ptx_build_error(o->builder, "another ldmatrix", words->whole);
    i->is_turned = (uint8_t)take_word(words, "trans");
    i->vector = take_word(words, "x4") ? 4 : take_word(words, "x2") ? 2 : (uint8_t)take_word(words, "x1");
    i->type = take_type(o->builder, words);
    i->is_shared = 1;
    if (operand_list(o, i->to, 4, 32) != i->vector)
        ptx_build_error(o->builder, "another number of parts", words->whole);
    expect(o, ",");
    i->with[0] = address(o, 32, &i->offset);
}

static void decode_mma(operands *o, ptx_instruction *i, opcode *words)
{
    static const char *const needed[] = {"sync", "aligned", "row", "col", "f32", "f32"};
    i->operation = PTX_MMA;
    for (size_t k = 0; k < sizeof needed / sizeof *needed; k++)
        if (!take_word(words, needed[k])) ptx_build_error(o->builder, "another mma", words->whole);
    i->vector = take_word(words, "m16n8k16") ? 16 : take_word(words, "m16n8k8") ? 8 : 0;
    i->kind = take_word(words, "bf16") && take_word(words, "bf16") ? 'b'
              : take_word(words, "f16") && take_word(words, "f16") ? 'f'
                                                                   : 0;
    int32_t a[4], b[2], c[4];
    const int n_to = operand_list(o, i->to, 4, 32), n_a = (expect(o, ","), operand_list(o, a, 4, 32)),
              n_b = (expect(o, ","), operand_list(o, b, 2, 32)),
              n_c = (expect(o, ","), operand_list(o, c, 4, 32));
    if (!i->vector || !i->kind || n_to != 4 || n_c != 4 || n_a != i->vector / 4 || n_b != i->vector / 8)
        ptx_build_error(o->builder, "another mma", words->whole);
    for (int k = 0; k < n_a; k++) i->with[k] = a[k];
    for (int k = 0; k < n_b; k++) i->with[4 + k] = b[k];
    for (int k = 0; k < 4; k++) i->with[6 + k] = c[k];
}

static void decode_branch(operands *o, ptx_instruction *i, opcode *words)
{
    i->operation = PTX_BRANCH;
    i->is_uniform = (uint8_t)take_word(words, "uni");
    ptx_jump_to(o->builder, o->builder->body_scope, next_token(o));
}

static void decode_return(operands *o, ptx_instruction *i)
{
    i->operation = PTX_RETURN;
    if (o->builder->return_to < 0) return;
    i->operation = PTX_BRANCH; /* of a function that is inlined: to its end */
    ptx_jump_to(o->builder, o->builder->return_to, (ptx_token){"$return", 7});
}

static void decode_barrier(operands *o, ptx_instruction *i, opcode *words)
{
    if (take_word(words, "warp")) {
        i->operation = PTX_WARP_BAR;
        take_word(words, "sync");
        i->with[0] = operand(o, 32);
        return;
    }
    i->operation = PTX_BAR;
    if (!take_word(words, "sync")) ptx_build_error(o->builder, "another barrier", words->whole);
    if (ptx_number(next_token(o)) != 0)
        ptx_build_error(o->builder, "a barrier of another number", words->whole);
}

static void decode_fence(ptx_builder *b, ptx_instruction *i, opcode *words)
{
    static const char *const levels[] = {"gl", "cta", "sys", "sc", "acq_rel", "gpu"};
    i->operation = PTX_FENCE;
    for (size_t k = 0; k < sizeof levels / sizeof *levels; k++) take_word(words, levels[k]);
    end_words(b, words);
}

/* What has options of its own; 0: not of this kind. */
static int decode_with_options(operands *o, ptx_instruction *i, opcode *words)
{
    const ptx_token name = words->word[0];
    if (ptx_is_token(name, "mov") && !decode_mov(o, i, words)) return 0;
    if (ptx_is_token(name, "setp")) decode_setp(o, i, words);
    if (ptx_is_token(name, "ld")) decode_load(o, i, words);
    if (ptx_is_token(name, "st")) decode_store(o, i, words);
    if (ptx_is_token(name, "atom") || ptx_is_token(name, "red")) decode_atomic(o, i, words);
    if (ptx_is_token(name, "shfl")) decode_shuffle(o, i, words);
    if (ptx_is_token(name, "ldmatrix")) decode_ldmatrix(o, i, words);
    if (ptx_is_token(name, "mma")) decode_mma(o, i, words);
    if (ptx_is_token(name, "bra")) decode_branch(o, i, words);
    if (ptx_is_token(name, "ret")) decode_return(o, i);
    if (ptx_is_token(name, "bar")) decode_barrier(o, i, words);
    if (ptx_is_token(name, "membar") || ptx_is_token(name, "fence")) decode_fence(o->builder, i, words);
    return i->operation != PTX_NOTHING;
}

void ptx_decode(ptx_builder *builder, const ptx_statement *statement)
{
    operands o = {builder, statement, 0};
    int32_t guard = PTX_NO_PLACE;
    int is_negated = 0;
    if (accept_mark(&o, "@")) {
        is_negated = accept_mark(&o, "!");
        guard = operand(&o, 1);
    }
    opcode words = split_opcode(next_token(&o));
    if (ptx_is_token(words.word[0], "call")) {
        if (guard != PTX_NO_PLACE) ptx_build_error(builder, "a call with a guard", words.whole);
        ptx_call(builder, statement, o.at);
        return;
    }
    ptx_instruction *const i = ptx_emit(builder);
    i->guard = guard;
    i->is_guard_negated = (uint8_t)is_negated;
    const lane_form *const form = find_lane_form(words.whole);
    if (ptx_is_token(words.word[0], "mov") || !form) {
        if (decode_with_options(&o, i, &words))
            end_words(builder, &words);
        else if (!form)
            ptx_build_error(builder, "an instruction that is not known", words.whole);
        else
            decode_lanes(&o, i, form);
    } else {
        decode_lanes(&o, i, form);
    }
    if (o.at != statement->n) ptx_build_error(builder, "more operands than expected", words.whole);
}
