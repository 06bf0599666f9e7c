/* function.c: the functions of each element (function.def). */
#include "tandem/graph.h"

#include <assert.h>
#include <math.h>

typedef double function_of_element(double x, double a, double b);
#define ROW(NAME, name, flops, value, slope)                                                                 \
    static double value_of_##name(double x, double a, double b)                                              \
    {                                                                                                        \
        (void)a, (void)b;                                                                                    \
        return value;                                                                                        \
    }                                                                                                        \
    static double slope_of_##name(double x, double a, double b)                                              \
    {                                                                                                        \
        (void)x, (void)a, (void)b;                                                                           \
        return slope;                                                                                        \
    }
#include "tandem/function.def"
#undef ROW

static const struct {
    const char *name;
    double flops;
    function_of_element *value, *slope;
} functions[TANDEM_N_FUNCTION] = {
#define ROW(NAME, name, flops, value, slope) {#name, flops, value_of_##name, slope_of_##name},
#include "tandem/function.def"
#undef ROW
};

const char *tandem_function_name(tandem_function function)
{
    assert((unsigned)function < TANDEM_N_FUNCTION);
    return functions[function].name;
}

double tandem_function_value(tandem_function function, double x, double alpha, double beta)
{
    assert((unsigned)function < TANDEM_N_FUNCTION);
    return functions[function].value(x, alpha, beta);
}

double tandem_function_slope(tandem_function function, double x, double alpha, double beta)
{
    assert((unsigned)function < TANDEM_N_FUNCTION);
    return functions[function].slope(x, alpha, beta);
}

double tandem_function_flops(tandem_function function)
{
    assert((unsigned)function < TANDEM_N_FUNCTION);
    return functions[function].flops;
}
