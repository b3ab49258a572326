#include "core/currency.h"

/* ISO 4217 list one, by number of digits; codes are separated by one space. Funds, metals and test codes without a
 * minor unit (XAU, XDR, XXX) are left out. */
static const struct {
    int digits;
    const char *codes;
} lists[] = {
    {0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"},
    {2,
     "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF "
     "CHW CNY COP COU CRC CUC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG "
     "HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK "
     "MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE "
     "SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XCD XCG YER ZAR ZMW "
     "ZWG"},
    {3, "BHD IQD JOD KWD LYD OMR TND"},
    {4, "CLF UYW"},
};

#define CODE_BYTES 3

static bool is_code(struct str code, char upper[CODE_BYTES])
{
    if (code.n != CODE_BYTES)
        return false;
    for (int i = 0; i < CODE_BYTES; i++) {
        char c = code.p[i];
        upper[i] = c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
        if (upper[i] < 'A' || upper[i] > 'Z')
            return false;
    }
    return true;
}

int currency_digits(struct str code)
{
    char upper[CODE_BYTES];
    if (!is_code(code, upper))
        return -1;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const char *p = lists[i].codes; *p; p += p[CODE_BYTES] ? CODE_BYTES + 1 : CODE_BYTES)
            if (memcmp(p, upper, CODE_BYTES) == 0)
                return lists[i].digits;
    return -1;
}
