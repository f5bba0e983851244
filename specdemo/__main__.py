from specdemo.cli.main import main

raise SystemExit(main())
