cdef extern from *:
    """
    #if defined(__linux__) && defined(__GNUC__) && defined(__x86_64__) && !defined(__ILP32__)
    static inline unsigned long emberstate_thread_number(void) {
        unsigned long number;
        __asm__("movq %%fs:0, %0" : "=r"(number));
        return number;
    }
    #elif defined(__linux__) && defined(__GNUC__) && defined(__aarch64__)
    static inline unsigned long emberstate_thread_number(void) {
        unsigned long number;
        __asm__("mrs %0, tpidr_el0" : "=r"(number));
        return number;
    }
    #else
    #include <pythread.h>
    #define emberstate_thread_number() PyThread_get_thread_ident()
    #endif
    """
    unsigned long thread_number "emberstate_thread_number"() noexcept
