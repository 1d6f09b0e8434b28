// Which directories an adapter may be read from: those below one, links followed, and no others.
#include "server/adapter_requests.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <variant>

#include "base/temp_directory.h"

namespace stemma {
namespace {

namespace fs = std::filesystem;

class AdapterRequests : public testing::Test {
 protected:
  AdapterRequests() {
    for (const char* const name : {"all/poet", "all-others/sage"}) {
      fs::create_directories(directory_.file(name));
    }
    std::ofstream(directory_.file("all/file")) << "x";
    fs::create_directory_symlink(directory_.file("all-others/sage"), directory_.file("all/out"));
    fs::create_directory_symlink(directory_.file("all/poet"), directory_.file("all/in"));
  }

  // The directory that is read; else which field is wrong.
  std::string loaded_from(const std::string& path) const {
    const std::string body = R"({"lora_name": "a", "lora_path": ")" + path + "\"}";
    const auto read = read_load_adapter(body, directory_.file("all"));
    const auto* const fault = std::get_if<ApiError>(&read);
    return fault != nullptr ? fault->param : std::get<AdapterRequest>(read).source.directory;
  }

  TempDirectory directory_;
};

TEST_F(AdapterRequests, AnAdapterIsADirectoryBelowTheOne) {
  const std::string poet = fs::canonical(directory_.file("all/poet")).string();
  EXPECT_EQ(loaded_from("poet"), poet);
  EXPECT_EQ(loaded_from("in"), poet) << "where a link leads";
  EXPECT_EQ(loaded_from(poet), poet) << "by its whole path";
}

TEST_F(AdapterRequests, WhatLeadsOutOfItIsRefused) {
  for (const std::string& path :
       {std::string("../all-others/sage"), std::string("poet/../../all-others/sage"),
        std::string("out"), directory_.file("all-others/sage"), std::string("/"),
        std::string("file"), std::string("nowhere"), std::string()}) {
    EXPECT_EQ(loaded_from(path), "lora_path") << path;
  }
}

TEST_F(AdapterRequests, NoneIsReadWhereThatIsNotWished) {
  const auto read = read_load_adapter(R"({"lora_name": "a", "lora_path": "poet"})", "");
  EXPECT_EQ(std::get<ApiError>(read).status, 403);
  EXPECT_EQ(std::get<ApiError>(read_unload_adapter(R"({"lora_name": "a"})", "")).status, 403);
}

TEST_F(AdapterRequests, AnAdapterHasAName) {
  const auto read = read_unload_adapter("{}", directory_.path());
  EXPECT_EQ(std::get<ApiError>(read).param, "lora_name");
}

}  // namespace
}  // namespace stemma
