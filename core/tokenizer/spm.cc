// spm.cc - the only file that includes libsentencepiece, with a C interface. The processor is
// immutable after spm_open: its const methods may be called from any thread.
#include <sentencepiece_processor.h>

#include <exception>
#include <memory>
#include <new>
#include <string_view>
#include <vector>

extern "C" {
#include "core/tokenizer/tokenizer_int.h"
}

struct spm {
    sentencepiece::SentencePieceProcessor processor;
};

static int report_library_error(err *e, const char *doing, const char *why) {
    return err_set(e, ERR_FORMAT, "sentencepiece: %s: %s", doing, why);
}

int spm_open(const void *model_proto, size_t n, struct spm **out, err *e) try {
    *out = nullptr;
    auto s = std::make_unique<spm>();
    const std::string_view bytes(static_cast<const char *>(model_proto), n);
    const auto status = s->processor.LoadFromSerializedProto(bytes);
    if (!status.ok()) return report_library_error(e, "vocabulary", status.error_message());
    *out = s.release();
    return 0;
} catch (const std::bad_alloc &) {
    return err_no_memory(e);
} catch (const std::exception &x) {
    return report_library_error(e, "vocabulary", x.what());
} catch (...) {
    return report_library_error(e, "vocabulary", "unknown error");
}

void spm_close(struct spm *s) {
    delete s;
}

int spm_encode(const struct spm *s, const char *text, size_t n, struct id_list *out, err *e) try {
    std::vector<int> ids;
    const auto status = s->processor.Encode(std::string_view(text, n), &ids);
    if (!status.ok()) return report_library_error(e, "text", status.error_message());
    for (const int id : ids)
        if (const int rc = id_list_add(out, id, e)) return rc;
    return 0;
} catch (const std::bad_alloc &) {
    return err_no_memory(e);
} catch (const std::exception &x) {
    return report_library_error(e, "text", x.what());
} catch (...) {
    return report_library_error(e, "text", "unknown error");
}
