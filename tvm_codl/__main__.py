from tvm_codl.cli.main import main

main()
