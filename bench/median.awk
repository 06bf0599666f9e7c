# The median of numbers in a text, blanks between them. Of bench/coverage.sh and bench/models.sh.
function median(list, n, v, i, j, t) {
    n = split(list, v, " ")
    for (i = 1; i < n; i++)
        for (j = i + 1; j <= n; j++)
            if (v[j] + 0 < v[i] + 0) { t = v[i]; v[i] = v[j]; v[j] = t }
    return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}
