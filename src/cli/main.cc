#include "cli/command.h"

int main(int argc, char** argv) {
  return stemma::run_command_line(argc, argv);
}
