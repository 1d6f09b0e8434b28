// TokenizerExamples: small tokenizer.json files for the tests of this room.
//
// Thread:     pure functions.
// Memory:     the returned strings.
// Cost:       none to speak of.
// Not here:   anything that programs need: only tests include this.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "model/tokenizer_bytes.h"
#include "model/unicode_text.h"

namespace stemma {

// The members of a file, each as JSON.
struct ExampleFile {
  std::string added_tokens = "[]";
  std::string normalizer = "null";
  std::string pre_tokenizer = "null";
  std::string around = "null";  // the post-processor
  std::string decoder = "null";
  std::string model = R"({"type":"BPE","vocab":{},"merges":[]})";

  std::string json() const {
    return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)" + added_tokens +
           R"(,"normalizer":)" + normalizer + R"(,"pre_tokenizer":)" + pre_tokenizer +
           R"(,"post_processor":)" + around + R"(,"decoder":)" + decoder + R"(,"model":)" + model +
           "}";
  }
};

using MergeList = std::initializer_list<std::pair<std::string_view, std::string_view>>;

// `text` as a JSON string.
inline std::string in_json(std::string_view text) {
  std::string json = "\"";
  for (const char byte : text) {
    json.append(byte == '"' || byte == '\\' ? "\\" : "").push_back(byte);
  }
  return json.append("\"");
}

// Tokens 0..255: the byte-level alphabet, by byte. From 256 on: what the merges make, in their
// order.
inline std::string byte_level_model(MergeList merges) {
  std::string vocab;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::string character;
    utf8_append(byte_level_alphabet()[byte], character);
    vocab += (byte == 0 ? "" : ",") + in_json(character) + ":" + std::to_string(byte);
  }
  std::string lines;
  std::size_t id = 256;
  for (const auto& [left, right] : merges) {
    vocab += "," + in_json(std::string(left) + std::string(right)) + ":" + std::to_string(id++);
    lines += (lines.empty() ? "" : ",") + in_json(std::string(left) + " " + std::string(right));
  }
  return R"({"type":"BPE","vocab":{)" + vocab + R"(},"merges":[)" + lines + "]}";
}

// Tokens: <unk> 0, <s> 1, </s> 2, <0x00>..<0xFF> 3..258, `pieces` from 259 on, then what the merges
// make.
inline std::string sentence_piece_model(std::initializer_list<std::string_view> pieces,
                                        MergeList merges) {
  std::string vocab = R"("<unk>":0,"<s>":1,"</s>":2)";
  std::size_t id = 3;
  const auto add = [&](std::string_view text) {
    vocab += "," + in_json(text) + ":" + std::to_string(id++);
  };
  for (std::size_t byte = 0; byte < 256; ++byte) {
    add(byte_token_name(static_cast<std::uint8_t>(byte)));
  }
  for (const std::string_view piece : pieces) {
    add(piece);
  }
  std::string lines;
  for (const auto& [left, right] : merges) {
    add(std::string(left) + std::string(right));
    lines += (lines.empty() ? "[" : ",[") + in_json(left) + "," + in_json(right) + "]";
  }
  return R"({"type":"BPE","unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,"vocab":{)" +
         vocab + R"(},"merges":[)" + lines + "]}";
}

inline constexpr std::string_view kByteLevelStep =
    R"({"type":"ByteLevel","add_prefix_space":false})";

// A byte-level file: "he" 256, "hell" 257.., " w" and so on, and two special tokens, 300 and 301.
inline ExampleFile byte_level_file() {
  ExampleFile file;
  file.model = byte_level_model({{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {"Ġ", "w"}});
  file.pre_tokenizer = kByteLevelStep;
  file.decoder = kByteLevelStep;
  file.added_tokens =
      R"([{"id":300,"content":"<|end|>","special":true},
          {"id":301,"content":"<|end|>!","special":true}])";
  return file;
}

// A SentencePiece-style file as Llama 2 has it: "▁" 259, h 260, i 261, "hi" 262, "▁hi" 263.
inline ExampleFile sentence_piece_file() {
  ExampleFile file;
  file.model = sentence_piece_model({"▁", "h", "i"}, {{"h", "i"}, {"▁", "hi"}});
  file.normalizer =
      R"({"type":"Sequence","normalizers":[
          {"type":"Prepend","prepend":"▁"},
          {"type":"Replace","pattern":{"String":" "},"content":"▁"}]})";
  file.decoder =
      R"({"type":"Sequence","decoders":[
          {"type":"Replace","pattern":{"String":"▁"},"content":" "},
          {"type":"ByteFallback"},
          {"type":"Fuse"},
          {"type":"Strip","content":" ","start":1,"stop":0}]})";
  file.added_tokens =
      R"([{"id":0,"content":"<unk>","special":true},
          {"id":1,"content":"<s>","special":true},
          {"id":2,"content":"</s>","special":true}])";
  file.around =
      R"({"type":"TemplateProcessing",
          "single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
          "pair":[],
          "special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]}}})";
  return file;
}

}  // namespace stemma
